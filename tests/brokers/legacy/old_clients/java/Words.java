/** Bytes as words: "-" is null, "x" is empty, "x6162" is two bytes. */
final class Words {
    private Words() {}

    static byte[] bytes(String word) {
        if (word.equals("-")) return null;
        byte[] bytes = new byte[word.length() / 2];
        for (int i = 0; i < bytes.length; i++)
            bytes[i] = (byte) Integer.parseInt(word.substring(1 + 2 * i, 3 + 2 * i), 16);
        return bytes;
    }

    static String word(byte[] bytes) {
        if (bytes == null) return "-";
        StringBuilder word = new StringBuilder(1 + 2 * bytes.length).append('x');
        for (byte one : bytes)
            word.append(Character.forDigit(one >> 4 & 15, 16)).append(Character.forDigit(one & 15, 16));
        return word.toString();
    }
}
