package shoal.agent;

import java.util.Optional;
import net.bytebuddy.asm.Advice;
import net.bytebuddy.implementation.bytecode.assign.Assigner;

/**
 * The code that is inserted into Kafka's methods. Byte Buddy copies these bodies to the start and the end of a method;
 * if the value at the start is not the default (false, null), the method's own code is skipped. Methods called from
 * here are public, because the copies are in Kafka's packages.
 */
final class Advices {
    private Advices() {}

    static final class ValidateRecords {
        private ValidateRecords() {}

        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static boolean enter(@Advice.Argument(0) short version, @Advice.Argument(1) Object records) throws Throwable {
            return RequestGate.validateEach(version, records);
        }
    }

    static final class AssignOffsets {
        private AssignOffsets() {}

        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static Object enter(
                @Advice.This Object validator,
                @Advice.Argument(0) Object counter,
                @Advice.Argument(1) Object metrics,
                @Advice.Argument(2) Object buffers)
                throws Throwable {
            return SetValidator.validate(validator, counter, metrics, buffers);
        }

        @Advice.OnMethodExit
        static void exit(
                @Advice.Enter Object ofSet,
                @Advice.Return(readOnly = false, typing = Assigner.Typing.DYNAMIC) Object result) {
            if (ofSet != null) {
                result = ofSet;
            }
        }
    }

    static final class TargetCompression {
        private TargetCompression() {}

        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static Object enter(@Advice.Argument(0) Optional<?> ofTopic, @Advice.Argument(1) Object source) {
            return ProducerCodecs.target(ofTopic, source);
        }

        @Advice.OnMethodExit
        static void exit(
                @Advice.Enter Object known,
                @Advice.Return(readOnly = false, typing = Assigner.Typing.DYNAMIC) Object result) {
            if (known != null) {
                result = known;
            }
        }
    }

    static final class ProducerState {
        private ProducerState() {}

        @Advice.OnMethodEnter
        static void enter(
                @Advice.This Object log, @Advice.Argument(1) Object records, @Advice.Argument(2) Object origin)
                throws Throwable {
            Duplicates.check(log, records, origin);
            Confirmation.begin(records, origin);
        }

        @Advice.OnMethodExit(onThrowable = Throwable.class)
        static void exit() throws Throwable {
            Confirmation.end();
        }
    }

    static final class ClearConfirmation {
        private ClearConfirmation() {}

        @Advice.OnMethodEnter(skipOn = Advice.OnNonDefaultValue.class)
        static boolean enter(@Advice.This Object manager, @Advice.Argument(0) long producerId) {
            return Confirmation.keeps(manager, producerId);
        }
    }

    static final class LowestSequence {
        private LowestSequence() {}

        @Advice.OnMethodExit
        static void exit(@Advice.Return(readOnly = false) int lowest) {
            if (Confirmation.isUsed()) {
                lowest = Integer.MAX_VALUE;
            }
        }
    }

    static final class EpochBump {
        private EpochBump() {}

        @Advice.OnMethodExit
        static void exit(@Advice.Return(readOnly = false) boolean bump) {
            if (Confirmation.isUsed()) {
                bump = false;
            }
        }
    }
}
