package shoal.agent;

import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.lang.reflect.Method;
import java.security.ProtectionDomain;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import net.bytebuddy.ByteBuddy;
import net.bytebuddy.asm.Advice;
import net.bytebuddy.dynamic.ClassFileLocator;
import net.bytebuddy.dynamic.DynamicType;
import net.bytebuddy.matcher.ElementMatchers;

/** Inserts advices into Kafka's methods: into all of a list, or after a failure into none. */
public final class Patches implements ClassFileTransformer {
    private final List<Patch> patches;
    private Throwable failure;

    /** A method, and the class of the advice for it. */
    public static final class Patch {
        final Method method;
        final Class<?> advice;

        public Patch(Method method, Class<?> advice) {
            this.method = method;
            this.advice = advice;
        }
    }

    private Patches(List<Patch> patches) {
        this.patches = patches;
    }

    /** Those for several batches per partition. Looks up every expected member of Kafka. */
    static List<Patch> forSets() throws ClassNotFoundException {
        List<Patch> patches = new ArrayList<>(List.of(
                new Patch(RequestGate.PATCHED, Advices.ValidateRecords.class),
                new Patch(SetValidator.PATCHED, Advices.AssignOffsets.class),
                new Patch(ProducerCodecs.PATCHED, Advices.TargetCompression.class),
                new Patch(Duplicates.PATCHED, Advices.ProducerState.class),
                new Patch(Confirmation.CLEAR, Advices.ClearConfirmation.class),
                new Patch(Confirmation.LOWEST, Advices.LowestSequence.class)));
        if (Broker.current().checksNewEpoch) {
            patches.add(new Patch(Confirmation.epochBump(), Advices.EpochBump.class));
        }
        loadAll(RecordSet.class, Results.class, WrittenLog.class, ProducerCodecs.class, Confirmation.class);
        return patches;
    }

    /** The names of the patched methods. After any exception none is patched. */
    static List<String> apply(Instrumentation jvm, List<Patch> wanted) throws Throwable {
        Patches patches = new Patches(wanted);
        Class<?>[] classes = wanted.stream()
                .map(patch -> patch.method.getDeclaringClass())
                .distinct()
                .toArray(Class<?>[]::new);
        jvm.addTransformer(patches, true);
        try {
            jvm.retransformClasses(classes);
            if (patches.failure != null) {
                throw patches.failure;
            }
        } catch (Throwable e) {
            jvm.removeTransformer(patches);
            jvm.retransformClasses(classes);
            throw e;
        }
        return patches.names();
    }

    /** Loads classes that are used only while the broker runs: the jar may be replaced by then. */
    public static void loadAll(Class<?>... types) throws ClassNotFoundException {
        for (Class<?> type : types) {
            Class.forName(type.getName());
            for (Class<?> inner : type.getDeclaredClasses()) {
                Class.forName(inner.getName(), false, type.getClassLoader());
            }
        }
    }

    private List<String> names() {
        return patches.stream()
                .map(patch -> patch.method.getDeclaringClass().getSimpleName() + "." + patch.method.getName())
                .collect(Collectors.toList());
    }

    @Override
    public byte[] transform(
            ClassLoader loader, String name, Class<?> type, ProtectionDomain domain, byte[] classFile) {
        List<Patch> wanted = patches.stream() // by type, not by name: other loaders may have a class of that name
                .filter(patch -> patch.method.getDeclaringClass() == type)
                .collect(Collectors.toList());
        if (wanted.isEmpty()) {
            return null;
        }
        try {
            return patched(wanted, type, classFile);
        } catch (Throwable e) { // the JVM ignores what a transformer throws
            failure = e;
            return null;
        }
    }

    private static byte[] patched(List<Patch> patches, Class<?> type, byte[] classFile) {
        DynamicType.Builder<?> builder =
                new ByteBuddy().redefine(type, ClassFileLocator.Simple.of(type.getName(), classFile));
        for (Patch patch : patches) {
            builder = builder.visit(Advice.to(patch.advice).on(ElementMatchers.is(patch.method)));
        }
        return builder.make().getBytes();
    }
}
