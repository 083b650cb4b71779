package shoal.agent.mirror;

import java.util.List;
import java.util.Map;

/** Attributes of {@code shoal:type=MirrorTopics}; counts are since the broker's start. */
public interface MirrorTopicsMXBean {
    /** Whether topics that match are mirror topics on this broker. */
    boolean isActive();

    /** The regular expression. */
    String getTopics();

    /** Class and method; empty if nothing is patched. */
    List<String> getPatchedMethods();

    /** Why they are off; empty if they are not. */
    String getReason();

    /** The ids of promoted topics, by name; also of topics that no longer exist. */
    Map<String, String> getPromoted();

    /** Batches that were appended at the offsets of their source. */
    long getBatches();

    /** Batches that were in the log, and were not appended again. */
    long getRepeatedBatches();

    /** Sets of which nothing was appended, and appends of ordinary producers. */
    long getRefused();

    /** Empty batches over a gap at the start of a leader epoch. */
    long getFillers();

    /** Markers of transactions that have no batch in the log. */
    long getMarkersLeftOut();
}
