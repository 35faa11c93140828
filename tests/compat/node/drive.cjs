// Runs one action of a driver and prints its result as the last line.
'use strict'

const WAIT_MS_MAX = 150_000
const LINES_MAX = 300

const lines = []

/** Keeps a line of the client's own log; the last ones are told when the action fails. */
function note (line) {
  lines.push(line)
  if (lines.length > LINES_MAX) lines.shift()
}

/** Resolves once `ready()` holds; rejects after WAIT_MS_MAX. */
async function until (what, ready) {
  const end = Date.now() + WAIT_MS_MAX
  while (!ready()) {
    if (Date.now() > end) throw new Error(`waited ${WAIT_MS_MAX} ms for ${what}`)
    await new Promise(resolve => setTimeout(resolve, 20))
  }
}

/** What the client said when a call failed, else what the call gave. */
async function said (call, describe) {
  try {
    return { gave: await call() }
  } catch (error) {
    return { error: describe(error) }
  }
}

const plain = (_, value) => {
  if (typeof value === 'bigint') return Number(value)
  if (value instanceof Map) return Object.fromEntries(value)
  return value
}

function drive (actions) {
  const [action, options] = process.argv.slice(2)
  actions[action](JSON.parse(options)).then(
    result => {
      process.stdout.write(JSON.stringify(result, plain) + '\n', () => process.exit(0))
    },
    error => {
      console.error(lines.join('\n'))
      console.error(error)
      process.exit(1)
    }
  )
}

module.exports = { drive, note, said, until }
