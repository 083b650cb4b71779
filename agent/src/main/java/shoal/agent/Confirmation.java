package shoal.agent;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodType;
import java.lang.reflect.Method;

/**
 * Transactions of sets: the coordinator's confirmation that a transaction is open in a partition (KIP-890) is for one append.
 *
 * <p>UnifiedLog asks each batch for it until the transaction has its first batch in the log, and forgets it with the first batch
 * that it looks at ({@code clearVerificationStateEntry}), because an append has no other. The confirmation also names the lowest
 * sequence that was seen, and no batch may begin above it ({@code VerificationStateEntry.lowestSequence}); and since 4.1, while it
 * is of version 2 ({@code supportsEpochBump}), every batch must begin at 0 whose producer had none in its epoch before the append.
 * So the second batch of a set would fail three times.
 *
 * <p>While the batches of one set, which are of one producer id and epoch and in sequence, are looked at, under the log's lock
 * and for one request, its confirmation stays; it is forgotten behind them. The first batch has every check that it has alone; the
 * others are held to its confirmation, and to the sequence of the batch before.
 */
public final class Confirmation {
    private static final String LOG = "org.apache.kafka.storage.internals.log.";
    private static final Class<?> MANAGER = Members.type(LOG + "ProducerStateManager");

    static final Method CLEAR = Members.method(MANAGER, "clearVerificationStateEntry", void.class, long.class);
    private static final Class<?> ENTRY = Members.type(LOG + "VerificationStateEntry");
    static final Method LOWEST = Members.method(ENTRY, "lowestSequence", int.class);

    private static final MethodHandle CLEAR_NOW =
            Members.handle(CLEAR).asType(MethodType.methodType(void.class, Object.class, long.class));
    private static final ThreadLocal<Confirmation> OF_SET = new ThreadLocal<>();

    private final long producerId;
    private Object manager; // that has to forget it

    /** For versions that check it. */
    static Method epochBump() {
        return Members.method(ENTRY, "supportsEpochBump", boolean.class);
    }

    private Confirmation(long producerId) {
        this.producerId = producerId;
    }

    /** This thread looks at {@code records} now. Nothing may fail between this and {@link #end}. */
    public static void begin(Object records, Object origin) throws Throwable {
        RecordSet set = SetValidator.isClient(origin) ? RecordSet.of(KafkaRecords.bytes(records)) : null;
        if (set != null && set.isTransactional()) {
            OF_SET.set(new Confirmation(set.producerId(0)));
        }
    }

    /** All batches were looked at, or one was refused. */
    public static void end() throws Throwable {
        Confirmation held = OF_SET.get();
        if (held == null) {
            return;
        }
        OF_SET.remove();
        if (held.manager != null) {
            CLEAR_NOW.invokeExact(held.manager, held.producerId);
        }
    }

    /** Whether the confirmation is to be forgotten later: at the end of the set that this thread looks at. */
    public static boolean keeps(Object manager, long producerId) {
        Confirmation held = OF_SET.get();
        if (held == null || held.producerId != producerId) {
            return false;
        }
        held.manager = manager;
        return true;
    }

    /** Whether this thread is past the first batch of a set. */
    public static boolean isUsed() {
        Confirmation held = OF_SET.get();
        return held != null && held.manager != null;
    }
}
