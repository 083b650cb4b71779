/**
 * A Java agent by which an unmodified Kafka broker takes several record batches per partition in one produce request.
 *
 * <pre>
 *     Agent      start-up: decides, patches all or nothing, tells
 *     Broker     the Kafka on the class path: its version, and the lines of versions that are known
 *     Members    looks up what is expected of Kafka's classes; anything else than expected ends the attempt
 *     Patches    retransforms the six methods, takes it back when one fails
 *     Advices    the code that is put into them: calls of the next five
 *     RequestGate, SetValidator with Results, ProducerCodecs, Duplicates with WrittenLog, Confirmation
 *     RecordSet  the bytes of a set: which sets the agent takes over
 *     Status     the MBean shoal:type=MultiBatchAgent
 * </pre>
 *
 * <p><b>How.</b> A set that {@link shoal.agent.RecordSet} takes over is cut into its batches, and each goes through Kafka's
 * own code as if it had come alone: a batch keeps every check that a single one gets, in the words of its version. All
 * batches of a set draw offsets from one counter, and the log gets them in one append: all or nothing, as KIP-98 wants.
 * Every other set (one batch, an old format, damage, control batches, more than one transaction) goes to Kafka's code as it
 * came, which treats it as ever.
 *
 * <p><b>Two gates</b> refuse sets in a stock broker, before anything is appended: {@code ProduceRequest.validateRecords}
 * and {@code LogValidator.validateMessagesAndAssignOffsets}. Five more methods would be wrong with sets:
 * <ul>
 * <li>{@code BrokerCompressionType.targetCompression} is asked once per set, though with compression.type=producer each batch
 * has a codec of its own; see {@link shoal.agent.ProducerCodecs}.
 * <li>{@code UnifiedLog.analyzeAndValidateProducerState} takes a set for a repetition as soon as one batch is one, and
 * acknowledges all of it unwritten; see {@link shoal.agent.Duplicates}.
 * <li>{@code ProducerStateManager.clearVerificationStateEntry}, {@code VerificationStateEntry.lowestSequence} and, since 4.1,
 * {@code VerificationStateEntry.supportsEpochBump} let the coordinator's confirmation of a new transaction (KIP-890) hold for one batch; see {@link shoal.agent.Confirmation}.
 * </ul>
 *
 * <p><b>Rejected:</b> removing the second check in {@code LogValidator} alone (its loops number records and choose codecs over
 * the whole set: compressed sets fail, or become one batch); replacing whole classes by an own jar in front of the class
 * path (one per patch release, and silent about the difference); one append per batch (a set could be written in part).
 */
package shoal.agent;
