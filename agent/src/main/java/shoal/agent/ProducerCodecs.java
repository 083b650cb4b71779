package shoal.agent;

import java.lang.invoke.MethodHandle;
import java.lang.reflect.Method;
import java.util.Optional;

/**
 * The codec of a batch in the log.
 *
 * <p>Kafka decides once per set: the topic's codec or, with compression.type=producer, the codec of the last compressed
 * batch. LogValidator gets only the result. So that each batch can keep its own codec with compression.type=producer,
 * and only then, this case is answered with objects that the agent recognises.
 */
public final class ProducerCodecs {
    static final Class<?> CODEC = Members.recordType("CompressionType");
    static final Class<?> COMPRESSION = Members.type("org.apache.kafka.common.compress.Compression");
    private static final Class<?> BUILDER = Members.type("org.apache.kafka.common.compress.Compression$Builder");

    static final Method PATCHED = Members.method(
            Members.type("org.apache.kafka.server.record.BrokerCompressionType"),
            "targetCompression",
            COMPRESSION,
            Optional.class,
            CODEC);

    private static final MethodHandle FOR_ID = Members.handle(Members.method(CODEC, "forId", CODEC, int.class));
    private static final MethodHandle OF = Members.handle(Members.method(COMPRESSION, "of", BUILDER, CODEC));
    private static final MethodHandle BUILD = Members.handle(Members.method(BUILDER, "build", COMPRESSION));

    /** Answers for compression.type=producer, by id. Immutable and shared by threads, like a topic's own. */
    private static final class Made { // made at first use: the start-up initialises no class of Kafka
        static final Object[] BY_ID = {make(0), make(1), make(2), make(3), make(4)};

        private static Object make(int id) {
            try {
                return (Object) BUILD.invokeExact((Object) OF.invokeExact(source(id)));
            } catch (Throwable e) {
                throw new IllegalStateException("no compression of id " + id, e);
            }
        }
    }

    private ProducerCodecs() {}

    /** The answer of targetCompression if the topic has no codec of its own, otherwise null. */
    public static Object target(Optional<?> ofTopic, Object source) {
        return ofTopic.isPresent() ? null : Made.BY_ID[((Enum<?>) source).ordinal()]; // ids equal the ordinals
    }

    static Object target(int id) {
        return Made.BY_ID[id];
    }

    /** Whether this was an answer of {@link #target(Optional, Object)}. */
    static boolean isProducers(Object compression) {
        for (Object made : Made.BY_ID) {
            if (made == compression) {
                return true;
            }
        }
        return false;
    }

    /** Kafka's CompressionType of an id. Throws IllegalArgumentException for an unknown one, as Kafka does. */
    static Object source(int id) throws Throwable {
        return (Object) FOR_ID.invokeExact(id);
    }
}
