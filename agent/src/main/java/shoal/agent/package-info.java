/**
 * A Java agent that makes an unmodified Kafka broker accept several record batches per partition in one produce
 * request.
 *
 * <pre>
 *     Agent      start-up: decides, patches everything or nothing, reports
 *     Broker     the Kafka on the class path: its version, and the known release lines
 *     Members    looks up the expected members of Kafka's classes; any difference ends the attempt
 *     Patches    retransforms the six or seven methods; reverts all of them if one fails
 *     Advices    the code that is inserted into them: calls of the next classes
 *     RequestGate, SetValidator with Results, ProducerCodecs, Duplicates with WrittenLog, Confirmation
 *     RecordSet  the bytes of a set: which sets the agent handles
 *     mirror     mirror topics, which keep the offsets of their source: a package with patches of its own
 *     BatchLayout  where a batch has its fields
 *     Status     the MBean shoal:type=MultiBatchAgent; PatchReport has what all MBeans have
 * </pre>
 *
 * <p><b>How.</b> A set that {@link shoal.agent.RecordSet} accepts is split into its batches, and each goes through
 * Kafka's own code as if it were alone: every batch gets every check of its Kafka version. All batches of a set take
 * offsets from one counter, and are written to the log in one append: all or nothing, as KIP-98 requires. Every other
 * set (one batch, an old format, damage, control batches, more than one transaction) goes to Kafka's code unchanged.
 *
 * <p><b>Two gates</b> refuse sets in a stock broker, before anything is appended: {@code
 * ProduceRequest.validateRecords} and {@code LogValidator.validateMessagesAndAssignOffsets}. Five more methods would be
 * wrong with sets:
 * <ul>
 * <li>{@code BrokerCompressionType.targetCompression} is called once per set, but with compression.type=producer each
 * batch has its own codec; see {@link shoal.agent.ProducerCodecs}.
 * <li>{@code UnifiedLog.analyzeAndValidateProducerState} treats a set as a duplicate if one of its batches is one, and
 * acknowledges all of it without writing; see {@link shoal.agent.Duplicates}.
 * <li>{@code ProducerStateManager.clearVerificationStateEntry}, {@code VerificationStateEntry.lowestSequence} and,
 * since 4.1, {@code VerificationStateEntry.supportsEpochBump} limit the coordinator's verification of a new transaction
 * (KIP-890) to one batch; see {@link shoal.agent.Confirmation}.
 * </ul>
 *
 * <p><b>Rejected:</b> removing only the second check in {@code LogValidator} (its loops assign offsets and choose the
 * codec for the whole set: compressed sets fail, or become one batch); replacing whole classes by a jar earlier on the
 * class path (one per patch release, and silent if it does not match); one append per batch (part of a set could be
 * written).
 */
package shoal.agent;
