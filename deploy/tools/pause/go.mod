module floe/tools/pause

go 1.26.0

tool floe/tools/pause
