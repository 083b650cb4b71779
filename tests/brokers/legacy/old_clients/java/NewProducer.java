import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The producer of 0.8.2 and later. */
public final class NewProducer implements Writer {
    private final List<Object> results = new ArrayList<>();
    private KafkaProducer<byte[], byte[]> producer;

    @Override
    public void open(Properties properties) {
        producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    @Override
    public void send(String topic, int partition, long timestamp, byte[] key, byte[] value) {
        try {
            results.add(producer.send(record(topic, partition, timestamp, key, value)));
        } catch (Exception error) {
            results.add(error);
        }
    }

    @Override
    public List<String> flush() throws Exception {
        List<String> outcomes = new ArrayList<>();
        for (Object result : results) {
            if (result instanceof Future) outcomes.add(outcome((Future<?>) result));
            else outcomes.add(OldClient.errorLine((Throwable) result));
        }
        results.clear();
        return outcomes;
    }

    @Override
    public void close() {
        producer.close();
    }

    private static String outcome(Future<?> future) throws Exception {
        try {
            return Long.toString(((RecordMetadata) future.get(120, TimeUnit.SECONDS)).offset());
        } catch (ExecutionException error) {
            return OldClient.errorLine(error.getCause());
        }
    }

    private static ProducerRecord<byte[], byte[]> record(
            String topic, Integer partition, long timestamp, byte[] key, byte[] value) throws Exception {
        if (timestamp < 0) return new ProducerRecord<>(topic, partition, key, value);
        return since010(topic, partition, timestamp, key, value);
    }

    @SuppressWarnings("unchecked")
    private static ProducerRecord<byte[], byte[]> since010(
            String topic, Integer partition, Long at, byte[] key, byte[] value) throws Exception {
        return ProducerRecord.class
                .getConstructor(String.class, Integer.class, Long.class, Object.class, Object.class)
                .newInstance(topic, partition, at, key, value);
    }
}
