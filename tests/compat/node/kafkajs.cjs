// KafkaJS through its own API.
'use strict'

const net = require('node:net')
const { Kafka, CompressionTypes, AssignerProtocol, logLevel } = require('kafkajs')
const { drive, note, said, until } = require('./drive.cjs')

const logCreator = () => ({ namespace, log: { timestamp, message, broker, error } }) =>
  note([timestamp, namespace, message, broker, error].filter(each => each !== undefined).join(' '))

const client = ({ bootstrap, clientId, retry, socketFactory }) =>
  new Kafka({ clientId: clientId || 'floe-compat', brokers: bootstrap.split(','), retry, socketFactory, logLevel: logLevel.DEBUG, logCreator })

const shown = (partition, { offset, key, value, headers, timestamp }) => ({
  partition,
  offset: Number(offset),
  key: key && key.toString(),
  value: value && value.toString(),
  headers: Object.fromEntries(Object.entries(headers).map(([name, each]) => [name, each.toString()])),
  timestamp: Number(timestamp)
})

async function withAdmin (options, use) {
  const admin = client(options).admin()
  await admin.connect()
  try {
    return await use(admin)
  } finally {
    await admin.disconnect()
  }
}

/** A member of a group whose records go to `read`; `assigned` is what it owns now. */
async function member (options, read) {
  const consumer = client(options).consumer({
    groupId: options.group, sessionTimeout: 6000, heartbeatInterval: 500, rebalanceTimeout: 10000, maxWaitTimeInMs: 200,
    rackId: options.rack || ''
  })
  const state = { consumer, assigned: null, joins: 0 }
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    state.assigned = (payload.memberAssignment[options.topic] || []).sort()
    state.joins += 1
  })
  await consumer.connect()
  await consumer.subscribe({ topic: options.topic, fromBeginning: true })
  await consumer.run({
    autoCommitThreshold: 1,
    eachMessage: async ({ partition, message }) => { read.push(shown(partition, message)) }
  })
  return state
}

drive({
  /** Sends `messages` in one request; what the broker answered per partition. */
  async produce (options) {
    const producer = client(options).producer({ idempotent: options.idempotent, maxInFlightRequests: 1 })
    await producer.connect()
    const answers = await producer.send({
      topic: options.topic,
      acks: options.acks,
      compression: options.gzip ? CompressionTypes.GZIP : CompressionTypes.None,
      messages: options.messages
    })
    await producer.disconnect()
    return answers.map(({ partition, baseOffset, errorCode }) => ({ partition, baseOffset: Number(baseOffset), errorCode }))
  },

  /** A transaction for each of `values`, with the next position of the group; all connections are cut between them. */
  async transactions (options) {
    const sockets = new Set()
    const socketFactory = ({ host, port, onConnect }) => {
      const socket = net.connect({ host, port }, onConnect)
      sockets.add(socket.on('close', () => sockets.delete(socket)))
      return socket
    }
    const { topic, group, transactionalId } = options
    const producer = client({ ...options, socketFactory }).producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    for (const [index, value] of options.values.entries()) {
      const transaction = await producer.transaction()
      await transaction.send({ topic, messages: [{ value, partition: 0 }] })
      await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic, partitions: [{ partition: 0, offset: `${index + 1}` }] }] })
      await transaction.commit()
      for (const socket of sockets) socket.destroy(new Error('cut'))
      await until('the cut', () => sockets.size === 0)
    }
    await producer.disconnect()
    return options.values.length
  },

  /** One member reads until it has `count` different records from where the group stands, and commits them. */
  async consume (options) {
    const read = []
    const state = await member(options, read)
    const places = () => new Set(read.map(each => `${each.partition}/${each.offset}`)).size
    await until(`${options.count} records`, () => places() >= options.count)
    await state.consumer.disconnect()
    return read
  },

  /** A second member joins the first and leaves again: who owned what, and what each read. */
  async rebalance (options) {
    const [reads, owned] = [[[], []], []]
    const note = members => owned.push(members.map(each => each.assigned))
    const first = await member(options, reads[0])
    await until('the first assignment', () => first.assigned && first.assigned.length === options.partitions)
    note([first])
    const second = await member(options, reads[1])
    const shared = () => first.assigned.length < options.partitions && second.assigned && second.assigned.length > 0
    await until('a shared assignment', shared)
    note([first, second])
    const described = await withAdmin(options, admin => admin.describeGroups([options.group]))
    await second.consumer.disconnect()
    await until('all of it again', () => first.assigned.length === options.partitions)
    note([first])
    await until('records', () => reads[0].length + reads[1].length >= options.count)
    await first.consumer.disconnect()
    const [group] = described.groups
    const topics = each => AssignerProtocol.MemberMetadata.decode(each.memberMetadata).topics
    return {
      owned,
      reads,
      group: { ...group, members: group.members.map(each => ({ clientId: each.clientId, topics: topics(each) })) }
    }
  },

  /** Every call of the admin client that has a meaning without security, in turn. */
  async admin (options) {
    const { topic, group } = options
    const describe = error => error.type || error.name
    return withAdmin(options, async admin => {
      const wanted = { topic, numPartitions: 2, replicationFactor: 1, configEntries: [{ name: 'retention.ms', value: '60000' }] }
      const configs = names => admin.describeConfigs({
        includeSynonyms: false, resources: [{ type: 2, name: topic, configNames: names }]
      })
      const found = {}
      found.validated = await admin.createTopics({ validateOnly: true, waitForLeaders: false, topics: [wanted] })
      found.absent = !(await admin.listTopics()).includes(topic)
      found.created = await admin.createTopics({ topics: [wanted] })
      found.again = await admin.createTopics({ topics: [wanted] })
      found.invalid = await said(() => admin.createTopics({ topics: [{ topic: 'no/slash' }] }), describe)
      found.listed = (await admin.listTopics()).includes(topic)
      await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
      const [metadata] = (await admin.fetchTopicMetadata({ topics: [topic] })).topics
      found.partitions = metadata.partitions.map(each => [each.partitionId, each.partitionErrorCode, each.replicas.length])
      const producer = client(options).producer()
      await producer.connect()
      await producer.send({ topic, messages: [0, 1, 2].map(each => ({ partition: each % 2, timestamp: `${1000 * (each + 1)}`, value: 'x' })) })
      await producer.disconnect()
      const order = (a, b) => a.partition - b.partition
      found.offsets = (await admin.fetchTopicOffsets(topic)).sort(order)
      found.byTime = (await admin.fetchTopicOffsetsByTimestamp(topic, 2000)).sort(order)
      found.config = (await configs(['retention.ms'])).resources[0].configEntries.map(each => [each.configName, each.configValue, each.isDefault]).sort()
      await admin.alterConfigs({ validateOnly: false, resources: [{ type: 2, name: topic, configEntries: [{ name: 'max.message.bytes', value: '5000' }] }] })
      found.altered = (await configs(['retention.ms', 'max.message.bytes'])).resources[0].configEntries.map(each => [each.configName, each.configValue, each.isDefault]).sort()
      found.badConfig = await said(() => admin.alterConfigs({ validateOnly: true, resources: [{ type: 2, name: topic, configEntries: [{ name: 'retention.ms', value: 'soon' }] }] }), describe)
      const cluster = await admin.describeCluster()
      found.cluster = { controller: cluster.brokers.some(each => each.nodeId === cluster.controller), named: cluster.clusterId.length > 0 }
      await admin.setOffsets({ groupId: group, topic, partitions: [{ partition: 0, offset: '1' }, { partition: 1, offset: '0' }] })
      found.set = await admin.fetchOffsets({ groupId: group, topics: [topic] })
      await admin.resetOffsets({ groupId: group, topic, earliest: false })
      found.reset = await admin.fetchOffsets({ groupId: group, topics: [topic] })
      found.groups = (await admin.listGroups()).groups.filter(each => each.groupId === group)
      found.described = (await admin.describeGroups([group, `${group}-unknown`])).groups.map(each => [each.errorCode, each.state, each.protocolType, each.members.length])
      await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '1' }] })
      found.low = (await admin.fetchTopicOffsets(topic)).sort(order)
      found.tooFar = await said(() => admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '100' }] }), describe)
      found.reassigning = await admin.listPartitionReassignments({ topics: [{ topic, partitions: [0] }] })
      const acl = { resourceType: 1, resourcePatternType: 1, operation: 1, permissionType: 1 }
      found.acls = await said(() => admin.describeAcls(acl), describe)
      found.deletedGroup = await admin.deleteGroups([group])
      found.unknownGroup = await said(() => admin.deleteGroups([group]), error => error.groups.map(each => each.errorCode))
      await admin.deleteTopics({ topics: [topic] })
      found.gone = !(await admin.listTopics()).includes(topic)
      return found
    })
  }
})
