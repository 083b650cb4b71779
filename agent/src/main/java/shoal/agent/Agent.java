package shoal.agent;

import java.lang.instrument.Instrumentation;
import java.util.List;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;
import shoal.agent.mirror.MirrorStatus;
import shoal.agent.mirror.MirrorTopics;

/**
 * Start-up: {@code KAFKA_OPTS=-javaagent:shoal-agent.jar}.
 *
 * <p>Kafka's scripts pass KAFKA_OPTS to every program; programs other than brokers are silently left unchanged. No
 * failure here prevents a broker from starting: it starts unpatched, and one line on standard error says so.
 */
public final class Agent {
    private static final List<String> OTHER_PROGRAMS = List.of(
            "org.apache.kafka.tools.",
            "kafka.tools.",
            "kafka.admin.",
            "org.apache.kafka.connect.",
            "org.apache.kafka.shell.");

    private Agent() {}

    /** Called by the JVM before the program's main method. */
    public static void premain(String arguments, Instrumentation jvm) {
        String program = System.getProperty("sun.java.command", "");
        if (OTHER_PROGRAMS.stream().anyMatch(program::startsWith)) {
            return;
        }
        try {
            Status status = patch(jvm);
            report(status);
            status.register();
            String topics = System.getProperty(MirrorStatus.PROPERTY, "");
            if (!topics.isEmpty()) {
                MirrorStatus mirror = patchForMirrors(jvm, topics, status.getReason());
                report(mirror);
                mirror.register();
            }
        } catch (Throwable e) {
            say("its MBean is missing: " + e);
        }
    }

    private static Status patch(Instrumentation jvm) {
        String kafka = "unknown";
        try {
            kafka = Broker.version();
            var line = Broker.line(kafka);
            if (line.isEmpty()) {
                return new Status(kafka, List.of(), "this version is none of " + Broker.knownLines());
            }
            Broker.use(line.get());
            return new Status(kafka, Patches.apply(jvm, Patches.forSets()), "");
        } catch (Throwable e) {
            return new Status(kafka, List.of(), reason(e));
        }
    }

    /** {@code reason}: why the broker has no other patches; empty if it has. */
    private static MirrorStatus patchForMirrors(Instrumentation jvm, String topics, String reason) {
        if (Broker.current() == null) {
            return MirrorStatus.off(topics, reason);
        }
        try {
            Pattern names = Pattern.compile(topics);
            List<String> patched = Patches.apply(jvm, MirrorTopics.patches());
            MirrorTopics.use(names);
            return MirrorStatus.on(topics, patched);
        } catch (PatternSyntaxException e) {
            return MirrorStatus.off(topics, "it is no regular expression: " + e.getDescription());
        } catch (Throwable e) {
            return MirrorStatus.off(topics, reason(e));
        }
    }

    /** The message of the innermost cause: Unexpected is wrapped in ExceptionInInitializerError. */
    private static String reason(Throwable e) {
        Throwable cause = e;
        while (cause.getCause() != null) {
            cause = cause.getCause();
        }
        return cause instanceof Members.Unexpected ? cause.getMessage() : cause.toString();
    }

    private static void report(Status status) {
        if (status.isActive()) {
            say("Kafka " + status.getKafkaVersion() + " takes several batches per partition; patched: "
                    + String.join(", ", status.getPatchedMethods()));
        } else {
            say("Kafka " + status.getKafkaVersion() + " is left as it is, nothing is patched: " + status.getReason());
        }
    }

    private static void report(MirrorStatus status) {
        String of = "mirror topics (" + MirrorStatus.PROPERTY + "=" + status.getTopics() + ")";
        if (status.isActive()) {
            say(of + " keep the offsets of their source; patched: " + String.join(", ", status.getPatchedMethods()));
        } else {
            say(of + " are off, these topics are ordinary ones: " + status.getReason());
        }
    }

    private static void say(String what) {
        System.err.println("shoal-agent " + Status.version() + ": " + what);
    }
}
