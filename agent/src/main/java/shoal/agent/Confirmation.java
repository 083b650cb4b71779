package shoal.agent;

import java.lang.invoke.MethodHandle;
import java.lang.reflect.Method;

/**
 * Sets in transactions: the coordinator's confirmation that a transaction is open in a partition (KIP-890's
 * verification) is valid for one append.
 *
 * <p>UnifiedLog requires it for each batch until the transaction has its first batch in the log, and removes it at the
 * first batch that it checks ({@code clearVerificationStateEntry}), because it expects one batch per append. The
 * confirmation also has the lowest sequence seen, and no batch may begin above it
 * ({@code VerificationStateEntry.lowestSequence}). Since 4.1, in transactions of version 2 ({@code supportsEpochBump}),
 * a batch must begin at 0 if its producer had no batch in its epoch before the append. So the second batch of a set
 * would fail all three checks.
 *
 * <p>All batches of a set have one producer id and epoch and are in sequence. They are checked for one request, under
 * the log's lock. The confirmation is kept until all of them are checked. The first batch gets every check of a single
 * batch; each other one needs the same confirmation, and must follow the sequence of the batch before it.
 */
public final class Confirmation {
    private static final String LOG = "org.apache.kafka.storage.internals.log.";
    private static final Class<?> MANAGER = WrittenLog.PRODUCER_STATE;

    static final Method CLEAR = Members.method(MANAGER, "clearVerificationStateEntry", void.class, long.class);
    private static final Class<?> ENTRY = Members.type(LOG + "VerificationStateEntry");
    static final Method LOWEST = Members.method(ENTRY, "lowestSequence", int.class);

    private static final MethodHandle CLEAR_NOW = Members.handle(CLEAR);
    private static final ThreadLocal<Confirmation> OF_SET = new ThreadLocal<>();

    private final long producerId;
    private Object manager; // from which the confirmation is removed at the end

    /** Only in versions that check it. */
    static Method epochBump() {
        return Members.method(ENTRY, "supportsEpochBump", boolean.class);
    }

    private Confirmation(long producerId) {
        this.producerId = producerId;
    }

    /** This thread starts to check {@code records}. Last call of the enter advice: if that fails, end is not called. */
    public static void begin(Object records, Object origin) throws Throwable {
        RecordSet set = SetValidator.isClient(origin) ? RecordSet.of(KafkaRecords.bytes(records)) : null;
        if (set != null && set.isTransactional()) {
            OF_SET.set(new Confirmation(set.producerId(0)));
        }
    }

    /** All batches are checked, or one is refused. */
    public static void end() throws Throwable {
        Confirmation held = OF_SET.get();
        if (held == null) {
            return;
        }
        OF_SET.remove();
        if (held.manager != null) {
            clear(held.manager, held.producerId);
        }
    }

    /** The confirmation of this producer's transaction is no longer valid. */
    public static void clear(Object manager, long producerId) throws Throwable {
        CLEAR_NOW.invokeExact(manager, producerId);
    }

    /** Whether the confirmation is kept until the end of the set that this thread checks. */
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
