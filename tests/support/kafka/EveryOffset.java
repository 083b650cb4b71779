import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** EveryOffset BOOTSTRAP (ISOLATION TOPIC FROM TO)...: what a consumer gets at each offset of partition 0. */
class EveryOffset {
    public static void main(String[] arguments) {
        for (int at = 1; at < arguments.length; at += 4) {
            read(arguments[0], arguments[at], arguments[at + 1], Long.parseLong(arguments[at + 2]),
                    Long.parseLong(arguments[at + 3]));
        }
    }

    private static void read(String bootstrap, String isolation, String topic, long from, long to) {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrap, "isolation.level", isolation, "auto.offset.reset", "none",
                "max.poll.records", 1, "fetch.max.wait.ms", 1, "max.partition.fetch.bytes", 1);
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            for (long offset = from; offset < to; offset++) {
                consumer.seek(partition, offset);
                ConsumerRecord<byte[], byte[]> found = next(consumer);
                System.out.printf("at %s %s %d %d %s %d%n", isolation, topic, offset, found.offset(),
                        found.timestampType(), found.timestamp());
            }
        }
    }

    private static ConsumerRecord<byte[], byte[]> next(KafkaConsumer<byte[], byte[]> consumer) {
        long until = System.nanoTime() + 30_000_000_000L;
        while (System.nanoTime() < until) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                return record;
            }
        }
        throw new IllegalStateException("no record");
    }
}
