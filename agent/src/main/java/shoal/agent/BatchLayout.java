package shoal.agent;

/** Positions in a batch of magic 2 (DefaultRecordBatch), after the base offset, and bits of its attributes. */
public final class BatchLayout {
    public static final int LENGTH = 8;
    public static final int LEADER_EPOCH = 12;
    public static final int LOG_OVERHEAD = 12;
    public static final int MAGIC = 16;
    public static final int CRC = 17;
    public static final int ATTRIBUTES = 21;
    public static final int LAST_OFFSET_DELTA = 23;
    public static final int BASE_TIMESTAMP = 27;
    public static final int MAX_TIMESTAMP = 35;
    public static final int PRODUCER_ID = 43;
    public static final int PRODUCER_EPOCH = 51;
    public static final int BASE_SEQUENCE = 53;
    public static final int COUNT = 57;
    public static final int HEADER = 61;

    public static final int CODEC = 0x07;
    public static final int LAST_CODEC = 4; // zstd
    public static final int TRANSACTIONAL = 0x10;
    public static final int CONTROL = 0x20;

    private BatchLayout() {}
}
