package shoal.agent;

import java.io.IOException;
import java.io.InputStream;
import java.util.List;
import java.util.Optional;
import java.util.Properties;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/** The Kafka on the class path: its version, and where its release line has the classes that matter here. */
public final class Broker {
    static final ClassLoader LOADER = ClassLoader.getSystemClassLoader();
    private static final String VERSION_FILE = "kafka/kafka-version.properties"; // in the jar of kafka-clients
    private static final Pattern RELEASE = Pattern.compile("(\\d+\\.\\d+)\\.\\d+"); // no match: a vendor's build

    private static final String SCALA_LOG = "kafka.log.UnifiedLog";
    private static final String JAVA_LOG = "org.apache.kafka.storage.internals.log.UnifiedLog";
    private static final String SCALA_METADATA = "kafka.server.metadata.KRaftMetadataCache";
    private static final String JAVA_METADATA = "org.apache.kafka.metadata.KRaftMetadataCache";
    private static final String STORAGE_ISOLATION = "org.apache.kafka.storage.internals.log.FetchIsolation";
    private static final String SERVER_ISOLATION = "org.apache.kafka.server.storage.log.FetchIsolation";
    private static final String RECORD = "org.apache.kafka.common.record";
    private static final String INTERNAL = RECORD + ".internal";

    /** Differences between release lines; Members detects a release that differs from its line. */
    private static final List<Line> LINES = List.of(
            new Line("3.9", RECORD, SCALA_LOG, STORAGE_ISOLATION, SCALA_METADATA, false, true),
            new Line("4.0", RECORD, SCALA_LOG, SERVER_ISOLATION, SCALA_METADATA, false, false),
            new Line("4.1", RECORD, JAVA_LOG, SERVER_ISOLATION, SCALA_METADATA, true, false),
            new Line("4.2", RECORD, JAVA_LOG, SERVER_ISOLATION, SCALA_METADATA, true, false),
            new Line("4.3", INTERNAL, JAVA_LOG, SERVER_ISOLATION, JAVA_METADATA, true, false));

    private static Line current;

    public static final class Line {
        final String name;
        /** The package of MemoryRecords and CompressionType. */
        final String recordPackage;
        /** The class UnifiedLog, Scala up to 4.0. */
        final String log;
        /** The class FetchIsolation. */
        final String fetchIsolation;
        /** The class KRaftMetadataCache, which gets each metadata image. */
        public final String metadataCache;
        /** The first sequence of a producer's new epoch must be 0; checked for each batch (KAFKA-18202). */
        final boolean checksNewEpoch;
        /** LogValidator also takes the inter-broker protocol version. */
        public final boolean validatorHasProtocol;

        private Line(
                String name,
                String recordPackage,
                String log,
                String fetchIsolation,
                String metadataCache,
                boolean checksNewEpoch,
                boolean validatorHasProtocol) {
            this.name = name;
            this.recordPackage = recordPackage;
            this.log = log;
            this.fetchIsolation = fetchIsolation;
            this.metadataCache = metadataCache;
            this.checksNewEpoch = checksNewEpoch;
            this.validatorHasProtocol = validatorHasProtocol;
        }
    }

    private Broker() {}

    /** The version of the Kafka on the class path; "none" if there is no Kafka. */
    static String version() throws IOException {
        try (InputStream file = LOADER.getResourceAsStream(VERSION_FILE)) {
            Properties properties = new Properties();
            if (file != null) {
                properties.load(file);
            }
            return properties.getProperty("version", "none").trim();
        }
    }

    /** The line of a released version; empty for an unknown one. */
    static Optional<Line> line(String version) {
        var release = RELEASE.matcher(version);
        if (!release.matches()) {
            return Optional.empty();
        }
        return LINES.stream().filter(line -> line.name.equals(release.group(1))).findFirst();
    }

    static String knownLines() {
        return LINES.stream().map(line -> line.name + ".x").collect(Collectors.joining(", "));
    }

    /** Call it before any class that looks up members of Kafka is initialised. */
    static void use(Line line) {
        current = line;
    }

    public static Line current() {
        return current;
    }
}
