package shoal.agent;

import java.util.List;

/** Attributes of {@code shoal:type=MultiBatchAgent}; counts are since the broker's start. */
public interface MultiBatchAgentMXBean {
    /** Whether this broker accepts several batches per partition. */
    boolean isActive();

    /** The agent's version. */
    String getVersion();

    String getKafkaVersion();

    /** Class and method; empty if nothing is patched. */
    List<String> getPatchedMethods();

    /** Why nothing is patched; empty if the broker is patched. */
    String getReason();

    /** Sets of several batches that were validated and passed on to the log. */
    long getSets();

    /** The batches of those sets. */
    long getBatches();

    /** Those sets whose bytes were appended unchanged, except offsets and epochs. */
    long getSetsInPlace();

    /** Sets refused because only a part of them was written before. */
    long getSetsRefusedAsRepeated();
}
