module floe/tools/porcupine

go 1.26.0

tool floe/tools/porcupine

require github.com/anishathalye/porcupine v1.3.1
