package shoal.agent;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodType;
import java.nio.ByteBuffer;

/** Kafka's MemoryRecords: bytes in, bytes out. */
public final class KafkaRecords {
    public static final Class<?> TYPE = Members.recordType("MemoryRecords");
    private static final MethodHandle BUFFER = Members.handle(Members.method(TYPE, "buffer", ByteBuffer.class))
            .asType(MethodType.methodType(ByteBuffer.class, Object.class));
    private static final MethodHandle READABLE = Members.handle(
                    Members.method(TYPE, "readableRecords", TYPE, ByteBuffer.class))
            .asType(MethodType.methodType(Object.class, ByteBuffer.class));

    private KafkaRecords() {}

    /** The bytes of a MemoryRecords; position and limit belong to the caller. */
    public static ByteBuffer bytes(Object records) throws Throwable {
        return (ByteBuffer) BUFFER.invokeExact(records);
    }

    public static Object of(ByteBuffer bytes) throws Throwable {
        return (Object) READABLE.invokeExact(bytes);
    }
}
