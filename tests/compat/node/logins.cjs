// KafkaJS and @platformatic/kafka at a door: each login writes, reads, and tries what it may not.
'use strict'

const { readFileSync } = require('node:fs')
const { Kafka, logLevel } = require('kafkajs')
const { Admin, Consumer, Producer, stringDeserializers, stringSerializers } = require('@platformatic/kafka')
const { drive, until } = require('./drive.cjs')

const DONE = 'done'

const tls = ({ ca, cert, key }) => ({
  ca: readFileSync(ca), ...(cert && { cert: readFileSync(cert), key: readFileSync(key) }), servername: 'localhost'
})

const kafkajs = {
  client ({ address, login, files }) {
    const { mechanism, user: username, secret } = login
    const sasl = {
      '': undefined,
      OAUTHBEARER: { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: secret }) }
    }
    return new Kafka({
      clientId: 'floe-compat',
      brokers: [address],
      ssl: tls(files),
      sasl: mechanism in sasl ? sasl[mechanism] : { mechanism: mechanism.toLowerCase(), username, password: secret },
      retry: { retries: 0 },
      logLevel: logLevel.NOTHING
    })
  },

  async write (door, topic, value) {
    const producer = this.client(door).producer()
    try {
      await producer.connect()
      await producer.send({ topic, messages: [{ value }] })
    } finally {
      await producer.disconnect()
    }
  },

  async read (door, topic, value, groupId) {
    const consumer = this.client(door).consumer({ groupId, maxWaitTimeInMs: 200, retry: { retries: 0 } })
    let found = false
    try {
      await consumer.connect()
      await consumer.subscribe({ topics: [topic], fromBeginning: true })
      await consumer.run({ eachMessage: async ({ message }) => { found = found || message.value.toString() === value } })
      await until('the record', () => found)
    } finally {
      await consumer.disconnect()
    }
  },

  said: error => `${error.name}: ${error.message}`
}

const platformatic = {
  base ({ address, login, files }) {
    const { mechanism, user: username, secret } = login
    const shown = mechanism === 'OAUTHBEARER' ? { token: secret } : { username, password: secret }
    return {
      clientId: 'floe-compat',
      bootstrapBrokers: [address],
      tls: tls(files),
      retries: 0,
      ...(mechanism && { sasl: { mechanism, ...shown } })
    }
  },

  async write (door, topic, value) {
    const producer = new Producer({ ...this.base(door), serializers: stringSerializers })
    try {
      await producer.send({ messages: [{ topic, value }] })
    } finally {
      await producer.close(true)
    }
  },

  async read (door, topic, value, groupId) {
    const consumer = new Consumer({ ...this.base(door), groupId, deserializers: stringDeserializers })
    let found = false
    let failed
    try {
      const stream = await consumer.consume({
        topics: [topic], mode: 'committed', fallbackMode: 'earliest', autocommit: false, maxWaitTime: 200
      })
      stream.on('data', message => { found = found || message.value === value })
      stream.on('error', error => { failed = error })
      await until('the record', () => found || failed)
      await stream.close()
    } finally {
      await consumer.close(true)
    }
    if (failed) throw failed
  },

  /** The innermost error that says something. */
  said (error) {
    const inner = (error.errors || []).concat(error.cause || [])
    return inner.length > 0 ? this.said(inner[0]) : `${error.name} ${error.apiId || error.code}: ${error.message}`
  }
}

/** DONE, or what the client said. */
async function outcome (client, call) {
  try {
    await call()
    return DONE
  } catch (error) {
    return client.said(error)
  }
}

/** Every login by itself, all side by side: way → what became of each of its tries. */
const all = client => async ({ doors, open, kept }) => Object.fromEntries(await Promise.all(doors.map(async door => {
  const { way, good, wrong, value, group } = door
  return [way, {
    write: await outcome(client, () => client.write(good, open, value)),
    read: await outcome(client, () => client.read(good, open, value, group)),
    wrong: await outcome(client, () => client.write(wrong, open, value)),
    'write kept': await outcome(client, () => client.write(good, kept, value)),
    'read kept': await outcome(client, () => client.read(good, kept, value, group))
  }]
})))

process.on('unhandledRejection', () => {}) // what a client that is closed while it tries leaves behind
drive({ kafkajs: all(kafkajs), platformatic: all(platformatic) })
