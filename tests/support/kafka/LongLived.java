import java.io.FileInputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** LongLived STOP_FILE (TOPIC PROPERTIES_FILE)...: a producer and a consumer for each topic, until the file exists. */
class LongLived {
    public static void main(String[] arguments) throws Exception {
        Path stop = Path.of(arguments[0]);
        ExecutorService threads = Executors.newCachedThreadPool();
        List<Future<?>> running = new ArrayList<>();
        for (int at = 1; at < arguments.length; at += 2) {
            String topic = arguments[at], file = arguments[at + 1];
            running.add(threads.submit(() -> run(topic, file, stop)));
        }
        for (Future<?> one : running) {
            one.get();
        }
        System.exit(0);
    }

    private static Void run(String topic, String file, Path stop) throws Exception {
        Properties settings = new Properties();
        try (FileInputStream input = new FileInputStream(file)) {
            settings.load(input);
        }
        settings.put("linger.ms", "0");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        long received = 0;
        try (KafkaProducer<String, String> producer =
                        new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
                KafkaConsumer<String, String> consumer =
                        new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            while (!Files.exists(stop)) {
                sent.add(producer.send(new ProducerRecord<>(topic, 0, null, "v" + sent.size())));
                received = check(consumer, received);
                Thread.sleep(30);
            }
            for (Future<RecordMetadata> one : sent) {
                one.get();
            }
            while (received < sent.size()) {
                received = check(consumer, received);
            }
            double logins = value(producer.metrics(), "successful-reauthentication-total");
            logins = Math.min(logins, value(consumer.metrics(), "successful-reauthentication-total"));
            System.out.println("outcome " + topic + " " + sent.size() + " " + (long) logins);
        }
        return null;
    }

    private static long check(KafkaConsumer<String, String> consumer, long received) {
        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(20))) {
            if (!record.value().equals("v" + received)) {
                throw new IllegalStateException("read " + record.value() + " instead of v" + received);
            }
            received++;
        }
        return received;
    }

    private static double value(Map<MetricName, ? extends Metric> metrics, String name) {
        return metrics.entrySet().stream()
                .filter(entry -> entry.getKey().name().equals(name) && !entry.getKey().tags().containsKey("node-id"))
                .mapToDouble(entry -> (double) entry.getValue().metricValue())
                .sum();
    }
}
