package shoal.agent;

import java.util.List;

/** What {@code shoal:type=MultiBatchAgent} tells; counts are since the broker's start. */
public interface MultiBatchAgentMXBean {
    /** Whether this broker takes several batches per partition. */
    boolean isActive();

    /** The agent's. */
    String getVersion();

    String getKafkaVersion();

    /** Class and method; empty where the broker is stock. */
    List<String> getPatchedMethods();

    /** Why nothing is patched; empty where it is. */
    String getReason();

    /** Sets of several batches that were validated and went on to be appended. */
    long getSets();

    /** The batches of those sets. */
    long getBatches();

    /** Those sets whose bytes went into the log as they came, but for offsets and epochs. */
    long getSetsInPlace();

    /** Sets refused because only a part of them had been written before. */
    long getSetsRefusedAsRepeated();
}
