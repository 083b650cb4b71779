package shoal.agent.mirror;

/** Why nothing of a set is appended. The text reaches the client, see {@link KafkaErrors}. */
final class Refusal extends Exception {
    private static final long serialVersionUID = 1L;

    enum Kind {
        READ_ONLY("errors.PolicyViolationException"), // 44
        MALFORMED("InvalidRecordException"), // 87
        WRONG_END("errors.OutOfOrderSequenceException"), // 45
        TOO_LARGE("errors.RecordTooLargeException"), // 10
        SET_TOO_LARGE("errors.RecordBatchTooLargeException"), // 18
        DAMAGED("errors.CorruptRecordException"); // 2

        /** In org.apache.kafka.common. */
        final String exception;

        Kind(String exception) {
            this.exception = exception;
        }
    }

    final Kind kind;

    private Refusal(Kind kind, String text) {
        super(text, null, false, false);
        this.kind = kind;
    }

    static Refusal readOnly(String text) {
        return new Refusal(Kind.READ_ONLY, text);
    }

    static Refusal malformed(String text) {
        return new Refusal(Kind.MALFORMED, text);
    }

    /** {@code expected}: "end 7" or "an empty log". A mirror reads the end from the text, and goes on there. */
    static Refusal wrongEnd(String expected, long end) {
        return new Refusal(Kind.WRONG_END, "expected " + expected + ", the log ends at " + end);
    }

    static Refusal tooLarge(String text) {
        return new Refusal(Kind.TOO_LARGE, text);
    }

    static Refusal setTooLarge(String text) {
        return new Refusal(Kind.SET_TOO_LARGE, text);
    }

    static Refusal damaged(String text) {
        return new Refusal(Kind.DAMAGED, text);
    }
}
