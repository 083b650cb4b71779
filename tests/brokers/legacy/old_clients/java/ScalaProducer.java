import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import kafka.javaapi.producer.Producer;
import kafka.producer.KeyedMessage;
import kafka.producer.Partitioner;
import kafka.producer.ProducerConfig;
import kafka.utils.VerifiableProperties;

/** The Scala producer of 0.8: a flush sends all records in one request, and returns no offsets. */
public final class ScalaProducer implements Writer {
    /** The partition key is the partition. */
    public static final class Given implements Partitioner {
        public Given(VerifiableProperties properties) {}

        @Override
        public int partition(Object key, int partitions) {
            return (Integer) key;
        }
    }

    private final List<KeyedMessage<byte[], byte[]>> waiting = new ArrayList<>();
    private Producer<byte[], byte[]> producer;

    @Override
    public void open(Properties properties) {
        properties.setProperty("partitioner.class", Given.class.getName());
        properties.setProperty("serializer.class", "kafka.serializer.DefaultEncoder");
        producer = new Producer<>(new ProducerConfig(properties));
    }

    @Override
    public void send(String topic, int partition, long timestamp, byte[] key, byte[] value) {
        waiting.add(new KeyedMessage<>(topic, key, partition, value));
    }

    @Override
    public List<String> flush() {
        String outcome = "-";
        try {
            producer.send(waiting);
        } catch (RuntimeException error) {
            outcome = OldClient.errorLine(error);
        }
        List<String> outcomes = new ArrayList<>(java.util.Collections.nCopies(waiting.size(), outcome));
        waiting.clear();
        return outcomes;
    }

    @Override
    public void close() {
        producer.close();
    }
}
