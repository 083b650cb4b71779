package shoal.agent.mirror;

import net.bytebuddy.asm.Advice;
import net.bytebuddy.implementation.bytecode.assign.Assigner;

/** As {@code shoal.agent.Advices}. */
final class MirrorAdvices {
    private MirrorAdvices() {}

    static final class Append {
        private Append() {}

        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static Object enter(
                @Advice.This Object log,
                @Advice.Argument(0) Object records,
                @Advice.Argument(1) int leaderEpoch,
                @Advice.Argument(2) Object origin)
                throws Throwable {
            return MirrorTopics.append(log, records, leaderEpoch, origin);
        }

        @Advice.OnMethodExit
        static void exit(
                @Advice.Enter Object ofMirror,
                @Advice.Return(readOnly = false, typing = Assigner.Typing.DYNAMIC) Object result) {
            if (ofMirror != null) {
                result = ofMirror;
            }
        }
    }

    static final class NewImage {
        private NewImage() {}

        @Advice.OnMethodEnter(suppress = Throwable.class) // else the broker would not apply the image
        static void enter(@Advice.Argument(0) Object image) throws Throwable {
            Promotions.read(image);
        }
    }
}
