import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** The consumer of 0.9 and later. Methods that differ between 0.9.0 and 0.10.2 are called by reflection. */
public final class NewConsumer implements Reader {
    private KafkaConsumer<byte[], byte[]> consumer;
    private boolean used = false;

    @Override
    public void open(Properties properties) {
        consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    @Override
    public void assign(String topic, int partition, long offset) {
        List<TopicPartition> all = new ArrayList<>(consumer.assignment());
        TopicPartition place = new TopicPartition(topic, partition);
        all.add(place);
        consumer.assign(all);
        consumer.seek(place, offset);
        used = true;
    }

    @Override
    public void subscribe(String topic) {
        consumer.subscribe(Arrays.asList(topic));
        used = true;
    }

    @Override
    public List<String> assigned() {
        List<String> all = new ArrayList<>();
        for (TopicPartition one : consumer.assignment()) all.add(one.topic() + " " + one.partition());
        return all;
    }

    @Override
    public List<String> poll(long millis) throws Exception {
        List<String> records = new ArrayList<>();
        if (used) for (ConsumerRecord<byte[], byte[]> one : consumer.poll(millis)) records.add(line(one));
        else Thread.sleep(1);
        return records;
    }

    @Override
    public void commitPolled() {
        consumer.commitSync();
    }

    @Override
    public void commit(String topic, int partition, long offset) {
        OffsetAndMetadata committed = new OffsetAndMetadata(offset, "said by a test");
        consumer.commitSync(Collections.singletonMap(new TopicPartition(topic, partition), committed));
    }

    @Override
    public Object committed(String topic, int partition) {
        OffsetAndMetadata found = consumer.committed(new TopicPartition(topic, partition));
        return found == null ? "null" : found.offset();
    }

    @Override
    public Object offset(String topic, int partition, String what) throws Exception {
        TopicPartition place = new TopicPartition(topic, partition);
        if (what.equals("earliest")) return sought("seekToBeginning", place);
        if (what.equals("latest")) return sought("seekToEnd", place);
        Map<TopicPartition, Long> times = Collections.singletonMap(place, Long.parseLong(what));
        Method method = KafkaConsumer.class.getMethod("offsetsForTimes", Map.class);
        Object found = ((Map<?, ?>) method.invoke(consumer, times)).get(place);
        return found == null ? "null" : found.getClass().getMethod("offset").invoke(found);
    }

    @Override
    public void close() {
        consumer.close();
    }

    /** 0.9 takes an array, later versions a collection. */
    private long sought(String name, TopicPartition place) throws Exception {
        if (!consumer.assignment().contains(place)) assign(place.topic(), place.partition(), 0);
        for (Method method : KafkaConsumer.class.getMethods()) {
            if (!method.getName().equals(name)) continue;
            boolean array = method.getParameterTypes()[0].isArray();
            Object argument = array ? new TopicPartition[] {place} : Arrays.asList(place);
            method.invoke(consumer, argument);
        }
        return consumer.position(place);
    }

    private static String line(ConsumerRecord<byte[], byte[]> one) throws Exception {
        String[] words = {
            one.topic(), "" + one.partition(), "" + one.offset(), timestamp(one),
            Words.word(one.key()), Words.word(one.value()),
        };
        return String.join(" ", words);
    }

    private static String timestamp(ConsumerRecord<byte[], byte[]> one) throws Exception {
        try {
            Object type = ConsumerRecord.class.getMethod("timestampType").invoke(one);
            return ConsumerRecord.class.getMethod("timestamp").invoke(one) + " " + type;
        } catch (NoSuchMethodException since010) {
            return "-1 NoTimestampType";
        }
    }
}
