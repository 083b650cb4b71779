package shoal.agent;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodType;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;

/**
 * The second gate, LogValidator: validates the batches of a partition under its log's lock and assigns offsets.
 *
 * <p>Each batch gets its own LogValidator, with the set's settings, the batch's codec, and the set's offset counter.
 */
public final class SetValidator {
    private static final String LOG = "org.apache.kafka.storage.internals.log.";
    private static final String UTILS = "org.apache.kafka.common.utils.";
    private static final Class<?> TYPE = Members.type(LOG + "LogValidator");
    private static final Class<?> ORIGIN = Members.type(LOG + "AppendOrigin");

    static final Method PATCHED = Members.method(
            TYPE,
            "validateMessagesAndAssignOffsets",
            Results.TYPE,
            Members.type(UTILS + "PrimitiveRef$LongRef"),
            Members.type(LOG + "LogValidator$MetricsRecorder"),
            Members.type(UTILS + "BufferSupplier"));

    private static final MethodHandle VALIDATE = Members.handle(PATCHED);

    private static final int RECORDS = 0;
    private static final int SOURCE = 3;
    private static final int TARGET = 4;
    private static final int MAGIC = 6;
    private static final int ORIGIN_AT = 11;
    private static final MethodHandle[] GETTERS = settings().stream()
            .map(field -> Members.getter(field).asType(MethodType.methodType(Object.class, Object.class)))
            .toArray(MethodHandle[]::new);
    private static final MethodHandle GET_RECORDS = GETTERS[RECORDS];
    private static final MethodHandle NEW = Members.handle(constructor())
            .asSpreader(Object[].class, GETTERS.length)
            .asType(MethodType.methodType(Object.class, Object[].class));

    private SetValidator() {}

    /** The result for a whole set; null if the agent does not handle this set: then nothing is done. */
    public static Object validate(Object validator, Object counter, Object metrics, Object buffers) throws Throwable {
        RecordSet set = RecordSet.of(KafkaRecords.bytes((Object) GET_RECORDS.invokeExact(validator)));
        if (set == null) {
            return null;
        }
        Object[] settings = new Object[GETTERS.length];
        for (int i = 0; i < settings.length; i++) {
            settings[i] = (Object) GETTERS[i].invokeExact(validator);
        }
        if (!isClient(settings[ORIGIN_AT]) || (byte) settings[MAGIC] != 2) {
            return null;
        }
        return validate(set, settings, counter, metrics, buffers);
    }

    private static Object validate(RecordSet set, Object[] ofSet, Object counter, Object metrics, Object buffers)
            throws Throwable {
        Results results = new Results(ofSet[RECORDS], set.size());
        boolean producers = ProducerCodecs.isProducers(ofSet[TARGET]);
        for (int i = 0; i < set.size(); i++) {
            Object[] settings = ofSet.clone();
            settings[RECORDS] = KafkaRecords.of(set.batch(i));
            settings[SOURCE] = ProducerCodecs.source(set.codec(i));
            settings[TARGET] = producers ? ProducerCodecs.target(set.codec(i)) : ofSet[TARGET];
            Object validator = (Object) NEW.invokeExact(settings);
            results.add(settings[RECORDS], (Object) VALIDATE.invokeExact(validator, counter, metrics, buffers));
        }
        Object merged = results.merged();
        Status.validated(set.size(), results.inPlace());
        return merged;
    }

    static boolean isClient(Object origin) {
        return ((Enum<?>) origin).name().equals("CLIENT");
    }

    /** The fields of LogValidator, which must be its constructor's parameters, in the same order. */
    private static List<Field> settings() {
        List<Field> fields = Members.fields(TYPE);
        String found = fields.stream()
                .map(field -> field.getName() + " " + field.getType().getName())
                .collect(Collectors.joining(", "));
        String wanted = String.join(", ", expectedSettings());
        if (!found.equals(wanted)) {
            throw new Members.Unexpected("LogValidator has the fields " + found + "; expected were " + wanted);
        }
        return fields;
    }

    private static List<String> expectedSettings() {
        List<String> fields = new ArrayList<>(List.of(
                "records " + KafkaRecords.TYPE.getName(),
                "topicPartition org.apache.kafka.common.TopicPartition",
                "time " + UTILS + "Time",
                "sourceCompressionType " + ProducerCodecs.CODEC.getName(),
                "targetCompression " + ProducerCodecs.COMPRESSION.getName(),
                "compactedTopic boolean",
                "toMagic byte",
                "timestampType org.apache.kafka.common.record.TimestampType",
                "timestampBeforeMaxMs long",
                "timestampAfterMaxMs long",
                "partitionLeaderEpoch int",
                "origin " + ORIGIN.getName()));
        if (Broker.current().validatorHasProtocol) {
            fields.add("interBrokerProtocolVersion org.apache.kafka.server.common.MetadataVersion");
        }
        return fields;
    }

    private static Constructor<?> constructor() {
        Constructor<?> constructor = Members.onlyConstructor(TYPE);
        List<Class<?>> wanted = settings().stream().map(Field::getType).collect(Collectors.toList());
        if (!List.of(constructor.getParameterTypes()).equals(wanted)) {
            throw new Members.Unexpected(constructor + " does not take the fields of LogValidator");
        }
        return constructor;
    }
}
