import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import kafka.javaapi.message.ByteBufferMessageSet;
import kafka.message.CompressionCodec$;
import kafka.message.NoCompressionCodec$;

/** Record sets of the Scala producer: magic 0, offsets from 0. */
public final class Written08 implements Written.Maker {
    @Override
    public ByteBuffer make(int magic, int codec, long offset, List<Written.Message> messages) {
        List<kafka.message.Message> all = new ArrayList<>();
        for (Written.Message one : messages)
            all.add(new kafka.message.Message(one.value, one.key, NoCompressionCodec$.MODULE$));
        return new ByteBufferMessageSet(CompressionCodec$.MODULE$.getCompressionCodec(codec), all).getBuffer();
    }
}
