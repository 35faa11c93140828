// @kafkajs/confluent-schema-registry through its own API, its records by KafkaJS.
'use strict'

const { Kafka, logLevel } = require('kafkajs')
const { SchemaRegistry } = require('@kafkajs/confluent-schema-registry')
const { drive, note, said, until } = require('./drive.cjs')

const logCreator = () => ({ log: { message, error } }) => note([message, error].filter(each => each !== undefined).join(' '))
const registryOf = ({ http }) => new SchemaRegistry({ host: http })
const described = error => ({ name: error.name, status: error.status, message: error.message })

/** Registers each schema in turn; what the client makes of each. */
async function register (options) {
  const registry = registryOf(options)
  const told = []
  for (const { subject, ...schema } of options.schemas) {
    told.push(await said(async () => (await registry.register(schema, { subject })).id, described))
  }
  return told
}

/** Encodes the values by the latest version of a subject, sends them, and reads and decodes them with a fresh client. */
async function roundtrip (options) {
  const kafka = new Kafka({ clientId: 'floe-compat', brokers: options.bootstrap.split(','), logLevel: logLevel.INFO, logCreator })
  const writer = registryOf(options)
  const id = await writer.getLatestSchemaId(options.subject)
  const version = await writer.getRegistryIdBySchema(options.subject, options.schema)
  const producer = kafka.producer()
  await producer.connect()
  const messages = []
  for (const value of options.values) messages.push({ value: await writer.encode(id, value) })
  await producer.send({ topic: options.topic, messages })
  await producer.disconnect()
  const reader = registryOf(options)
  const read = []
  const consumer = kafka.consumer({ groupId: `${options.topic}-group`, maxWaitTimeInMs: 200 })
  await consumer.connect()
  await consumer.subscribe({ topics: [options.topic], fromBeginning: true })
  await consumer.run({ eachMessage: async ({ message }) => { read.push(await reader.decode(message.value)) } })
  await until('the records', () => read.length >= options.values.length)
  await consumer.disconnect()
  return { id, known: version, read }
}

/** What the client says of an id that nobody has. */
const unknown = async options => said(() => registryOf(options).getSchema(options.id), described)

drive({ register, roundtrip, unknown })
