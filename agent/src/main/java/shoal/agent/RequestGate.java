package shoal.agent;

import java.lang.invoke.MethodHandle;
import java.lang.reflect.Method;

/** The first gate, ProduceRequest.validateRecords: checks batches before the request is processed further. */
public final class RequestGate {
    static final Method PATCHED = Members.method(
            Members.type("org.apache.kafka.common.requests.ProduceRequest"),
            "validateRecords",
            void.class,
            short.class,
            Members.recordType("BaseRecords"));
    private static final MethodHandle VALIDATE = Members.handle(PATCHED);

    private RequestGate() {}

    /** Lets Kafka check each batch separately. False if the agent does not handle this set: then nothing is done. */
    public static boolean validateEach(short version, Object records) throws Throwable {
        if (!KafkaRecords.TYPE.isInstance(records)) {
            return false;
        }
        RecordSet set = RecordSet.of(KafkaRecords.bytes(records));
        if (set == null) {
            return false;
        }
        for (int i = 0; i < set.size(); i++) {
            VALIDATE.invokeExact(version, KafkaRecords.of(set.batch(i)));
        }
        return true;
    }
}
