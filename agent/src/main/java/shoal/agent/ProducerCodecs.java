package shoal.agent;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodType;
import java.lang.reflect.Method;
import java.util.Optional;

/**
 * Which codec a batch is to have in the log.
 *
 * <p>Kafka decides once per set: the topic's own codec, or, with compression.type=producer, "the codec of the set", which it
 * takes from the last compressed batch. LogValidator is told the outcome only. To let each batch keep its own codec, but only
 * where the topic says so, the second case is answered with objects that the agent knows again.
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

    private static final MethodHandle FOR_ID = Members.handle(Members.method(CODEC, "forId", CODEC, int.class))
            .asType(MethodType.methodType(Object.class, int.class));
    private static final MethodHandle OF = Members.handle(Members.method(COMPRESSION, "of", BUILDER, CODEC))
            .asType(MethodType.methodType(Object.class, Object.class));
    private static final MethodHandle BUILD = Members.handle(Members.method(BUILDER, "build", COMPRESSION))
            .asType(MethodType.methodType(Object.class, Object.class));

    /** What is answered for compression.type=producer, by id. Like a topic's own, these are immutable and shared by threads. */
    private static final class Made { // when first asked for: the start-up initialises no class of Kafka
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

    /** The answer of targetCompression where the topic has no codec of its own, else null. */
    public static Object target(Optional<?> ofTopic, Object source) {
        return ofTopic.isPresent() ? null : Made.BY_ID[((Enum<?>) source).ordinal()]; // the ids count as the constants do
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

    /** Kafka's CompressionType of an id. Raises IllegalArgumentException for an unknown one, as Kafka does. */
    static Object source(int id) throws Throwable {
        return (Object) FOR_ID.invokeExact(id);
    }
}
