package shoal.agent.mirror;

import java.lang.invoke.MethodHandle;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import shoal.agent.Members;

/** Kafka's exceptions for refusals: ReplicaManager sends the text only of one inside a RecordValidationException. */
final class KafkaErrors {
    private static final String COMMON = "org.apache.kafka.common.";
    private static final MethodHandle WITH_TEXT = Members.handle(Members.constructor(
            Members.type("org.apache.kafka.storage.internals.log.RecordValidationException"),
            Members.type(COMMON + "errors.ApiException"),
            List.class));
    private static final Map<Refusal.Kind, MethodHandle> OF = new EnumMap<>(Refusal.Kind.class);

    static {
        for (Refusal.Kind kind : Refusal.Kind.values()) {
            OF.put(kind, Members.handle(Members.constructor(Members.type(COMMON + kind.exception), String.class)));
        }
    }

    private KafkaErrors() {}

    static Throwable of(Refusal refusal) throws Throwable {
        return (Throwable) WITH_TEXT.invoke(OF.get(refusal.kind).invoke(refusal.getMessage()), List.of());
    }
}
