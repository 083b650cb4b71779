import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import kafka.javaapi.message.ByteBufferMessageSet;
import kafka.message.CompressionCodec$;
import kafka.message.NoCompressionCodec$;

/** The Scala producer's; it knows magic 0, and offsets from 0 on. */
public final class Written08 implements Written.Maker {
    @Override
    public ByteBuffer make(int magic, int codec, long offset, List<Written.Message> messages) {
        List<kafka.message.Message> all = new ArrayList<>();
        for (Written.Message one : messages) all.add(new kafka.message.Message(one.value, one.key, NoCompressionCodec$.MODULE$));
        return new ByteBufferMessageSet(CompressionCodec$.MODULE$.getCompressionCodec(codec), all).getBuffer();
    }
}
