/**
 * Mirror topics: a topic whose leader appends batches at the offsets of their source, as a follower does.
 *
 * <pre>
 *     MirrorTopics  the hook in UnifiedLog.appendAsLeader: what is appended, what is refused
 *     MirrorSet     the bytes of a set of flagged batches; pure
 *     Verifier      checks of batches that need no lock: CRC, offsets and keys of records
 *     MirrorLog     members of Kafka's UnifiedLog
 *     LoggedBatches compares batches that are sent again with those in the log
 *     Refusal       the errors, with texts that reach the client
 *     Promotions    which topics are promoted: from the cluster's metadata
 *     MirrorStatus  the MBean shoal:type=MirrorTopics
 * </pre>
 *
 * <p><b>Flag and fence.</b> Only batches with a flag are appended: a value of partitionLeaderEpoch that no client sends
 * ({@code -2 - gap}, outside the CRC). {@code gap} is the number of offsets that the source has no batch for, directly
 * before this one. So the log must end at {@code baseOffset - gap}, or behind one filler in the gap, or nothing
 * is appended (error 45, with the log's end): a set that follows a refused one in the pipeline can't leave a hole that
 * nothing fills.
 *
 * <p><b>Idempotent by offset.</b> Batches below the log's end are left out, if the log has the same records there.
 * Otherwise the set is refused (87): the source was re-created or truncated, or another client has written here.
 *
 * <p><b>The follower's path.</b> {@code appendAsFollower} takes batches with any offsets, holes and timestamps, and
 * keeps their bytes; LogValidator, on the leader's path, would not. Its one trap: a gap directly after an election. The
 * leader's epoch begins at the log's end, followers let it begin at the first batch that they see. So there the leader
 * appends an empty batch over the gap first, and all replicas agree.
 *
 * <p><b>Read-only until promoted.</b> Each promotion is a key of the cluster's default broker configuration, {@code
 * shoal.mirror.promoted.TOPIC}, with the topic's id: KRaft replicates it to all brokers, in order with elections, and
 * no mirror overwrites it. A topic that is created again has another id.
 *
 * <p><b>Rejected:</b> setting LogValidator's counter (a first offset of 5e9 overflows in {@code maybeRoll}, holes are
 * refused, LogAppendTime is lost); a topic's configuration for promotions (the mirror overwrites it, and brokers refuse
 * unknown names there); a mark in the log (retention deletes it).
 */
package shoal.agent.mirror;
