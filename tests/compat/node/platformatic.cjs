// @platformatic/kafka through its own API.
'use strict'

const {
  Admin, Consumer, Producer, stringDeserializers, stringSerializers, ConfigResourceTypes
} = require('@platformatic/kafka')
const { drive, said, until } = require('./drive.cjs')

const base = options => ({ clientId: 'floe-compat', bootstrapBrokers: options.bootstrap.split(',') })

const shown = ({ partition, offset, key, value, headers, timestamp }) =>
  ({ partition, offset: Number(offset), key, value, headers: Object.fromEntries(headers), timestamp: Number(timestamp) })

/** The names of all protocol errors below an error of the client. */
function names (error) {
  const inner = (error.errors || []).flatMap(names)
  return inner.length > 0 ? [...new Set(inner)] : [error.apiId || error.code]
}

async function withAdmin (options, use) {
  const admin = new Admin(base(options))
  try {
    return await use(admin)
  } finally {
    await admin.close()
  }
}

async function send (options, messages, settings) {
  const producer = new Producer({ ...base(options), serializers: stringSerializers })
  try {
    return await producer.send({ messages: messages.map(each => ({ ...each, topic: options.topic })), ...settings })
  } finally {
    await producer.close()
  }
}

/** A member of a group whose records go to `read`. */
async function member (options, read) {
  const group = options.protocol === 'consumer'
    ? { groupProtocol: 'consumer' }
    : { sessionTimeout: 6000, heartbeatInterval: 500, rebalanceTimeout: 10000 }
  const consumer = new Consumer({ ...base(options), groupId: options.group, deserializers: stringDeserializers, ...group })
  const stream = await consumer.consume({
    topics: [options.topic], mode: 'committed', fallbackMode: 'earliest', autocommit: false, maxWaitTime: 200
  })
  const state = { consumer, stream, commits: Promise.resolve() }
  const uncommitted = new Map()
  stream.on('data', message => {
    read.push(shown(message))
    uncommitted.set(message.partition, message)
    state.commits = state.commits.then(async () => {
      const newest = [...uncommitted.values()]
      uncommitted.clear()
      for (const each of newest) await each.commit()
    })
  })
  stream.on('error', error => { state.failed = error })
  return state
}

async function leave (state) {
  await state.commits
  await state.stream.close()
  await state.consumer.close(true)
  if (state.failed) throw state.failed
}

const owned = state => ((state.consumer.assignments || [])[0] || { partitions: [] }).partitions.slice().sort()

drive({
  /** Sends `messages` in one call; what the broker answered per partition. */
  async produce (options) {
    const messages = options.messages.map(each => ({ ...each, timestamp: BigInt(each.timestamp) }))
    const { idempotent, acks, compression } = options
    const answer = await send(options, messages, { idempotent, acks, compression })
    return (answer.offsets || []).map(({ partition, offset }) => ({ partition, baseOffset: Number(offset) }))
  },

  /** One member reads `count` records from where the group stands and commits them. */
  async consume (options) {
    const read = []
    const state = await member(options, read)
    await until(`${options.count} records`, () => state.failed || read.length >= options.count)
    await leave(state)
    return read
  },

  /** A second member joins the first and leaves again: who owned what, and what each read. */
  async rebalance (options) {
    const [reads, shares] = [[[], []], []]
    const first = await member(options, reads[0])
    await until('the first assignment', () => owned(first).length === options.partitions)
    shares.push([owned(first)])
    const second = await member(options, reads[1])
    await until('a shared assignment', () => owned(second).length > 0 && owned(first).length + owned(second).length === options.partitions)
    shares.push([owned(first), owned(second)])
    const listed = await withAdmin(options, admin => admin.listGroups({ types: [options.protocol] }))
    await leave(second)
    await until('all of it again', () => owned(first).length === options.partitions)
    shares.push([owned(first)])
    await until('records', () => reads[0].length + reads[1].length >= options.count)
    await leave(first)
    return { owned: shares, reads, group: listed.get(options.group) }
  },

  /** Every call of the admin client that has a meaning without security, in turn. */
  async admin (options) {
    const { topic, group } = options
    return withAdmin(options, async admin => {
      const found = {}
      const config = keys => admin.describeConfigs({
        resources: [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: topic, configurationKeys: keys }],
        includeSynonyms: true
      })
      const brief = async keys => (await config(keys))[0].configs.map(each => [each.name, each.value, each.configSource]).sort()
      const created = await admin.createTopics({ topics: [topic], partitions: 2, replicas: 1, configs: [{ name: 'retention.ms', value: '60000' }] })
      found.created = created.map(each => [each.partitions, each.replicas, each.configuration['retention.ms']])
      found.again = await said(() => admin.createTopics({ topics: [topic], partitions: 2, replicas: 1 }), names)
      found.listed = (await admin.listTopics()).includes(topic)
      await admin.createPartitions({ topics: [{ name: topic, count: 3 }] })
      found.fewer = await said(() => admin.createPartitions({ topics: [{ name: topic, count: 1 }] }), names)
      const metadata = await admin.metadata({ topics: [topic] })
      found.partitions = metadata.topics.get(topic).partitions.map(each => [each.leaderEpoch, each.replicas.length, each.offlineReplicas.length])
      found.cluster = metadata.brokers.has(metadata.controllerId)
      await send(options, [0, 1, 2].map(each => ({ partition: each % 2, timestamp: BigInt(1000 * (each + 1)), value: 'x' })), {})
      const offsets = timestamp => admin.listOffsets({ topics: [{ name: topic, partitions: [0, 1, 2].map(partitionIndex => ({ partitionIndex, timestamp })) }] })
      const ordered = answer => answer[0].partitions.sort((a, b) => a.partitionIndex - b.partitionIndex).map(each => [each.partitionIndex, each.offset, each.timestamp])
      for (const time of [-1, -2, -3, 2000]) found[`offsets at ${time}`] = ordered(await offsets(BigInt(time)))
      found.config = await brief(['retention.ms', 'cleanup.policy'])
      await admin.incrementalAlterConfigs({ resources: [{ resourceType: 2, resourceName: topic, configs: [{ name: 'cleanup.policy', configOperation: 2, value: 'compact' }] }] })
      found.appended = await brief(['cleanup.policy'])
      await admin.alterConfigs({ resources: [{ resourceType: 2, resourceName: topic, configs: [{ name: 'max.message.bytes', value: '5000' }] }] })
      found.replaced = await brief(['retention.ms', 'cleanup.policy', 'max.message.bytes'])
      found.badConfig = await said(() => admin.alterConfigs({ resources: [{ resourceType: 2, resourceName: topic, configs: [{ name: 'retention.ms', value: 'soon' }] }] }), names)
      const [coordinator] = await admin.findCoordinator({ keyType: 0, keys: [group] })
      found.coordinator = [coordinator.key, metadata.brokers.has(coordinator.nodeId)]
      await admin.alterConsumerGroupOffsets({ groupId: group, topics: [{ name: topic, partitionOffsets: [{ partition: 0, offset: 1n }, { partition: 1, offset: 1n }] }] })
      const positions = async () => (await admin.listConsumerGroupOffsets({ groups: [group] }))[0].topics.flatMap(each => each.partitions).map(each => [each.partitionIndex, each.committedOffset, each.committedLeaderEpoch, each.metadata]).sort()
      found.positions = await positions()
      found.deletedPosition = await admin.deleteConsumerGroupOffsets({ groupId: group, topics: [{ name: topic, partitionIndexes: [1] }] })
      found.left = await positions()
      found.group = (await admin.listGroups()).get(group)
      const described = (await admin.describeGroups({ groups: [group] })).get(group)
      found.described = [described.state, described.protocolType, described.protocol, described.members.size]
      found.records = await admin.deleteRecords({ topics: [{ name: topic, partitions: [{ partition: 0, offset: 1n }] }] })
      found.tooFar = await said(() => admin.deleteRecords({ topics: [{ name: topic, partitions: [{ partition: 0, offset: 100n }] }] }), names)
      const logs = await admin.describeLogDirs({ topics: [{ name: topic, partitions: [0, 1, 2] }] })
      const held = logs.flatMap(each => each.results).flatMap(each => each.topics).flatMap(each => each.partitions)
      found.logs = held.map(each => [each.partitionIndex, each.offsetLag, each.isFutureKey]).sort()
      found.quotas = await said(() => admin.describeClientQuotas({ components: [{ entityType: 'client-id', matchType: 2 }] }), names)
      const everything = { resourceType: 1, resourceName: null, resourcePatternType: 1, principal: null, host: null, operation: 1, permissionType: 1 }
      found.acls = await said(() => admin.describeAcls({ filter: everything }), names)
      await admin.deleteGroups({ groups: [group] })
      found.unknownGroup = await said(() => admin.deleteGroups({ groups: [group] }), names)
      await admin.deleteTopics({ topics: [topic] })
      found.gone = !(await admin.listTopics()).includes(topic)
      found.goneTwice = await said(() => admin.deleteTopics({ topics: [topic] }), names)
      return found
    })
  }
})
