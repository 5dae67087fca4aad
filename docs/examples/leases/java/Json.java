import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** JSON, which Java's standard library does not read: objects as Map, arrays as List, numbers as Double. */
final class Json {
  private final String text;
  private int at = 0;

  private Json(String text) {
    this.text = text;
  }

  /** Throws IllegalArgumentException if the text is no JSON. */
  static Object parse(String text) {
    Json json = new Json(text);
    Object value = json.value();
    json.blanks();
    if (json.at < text.length()) throw json.fault();
    return value;
  }

  @SuppressWarnings("unchecked")
  static Map<String, Object> parseObject(String text) {
    if (parse(text) instanceof Map<?, ?> object) return (Map<String, Object>) object;
    throw new IllegalArgumentException("This is no object: " + text);
  }

  static String quote(String value) {
    StringBuilder quoted = new StringBuilder("\"");
    for (char one : value.toCharArray()) {
      if (one == '"' || one == '\\') quoted.append('\\').append(one);
      else if (one < ' ') quoted.append(String.format("\\u%04x", (int) one));
      else quoted.append(one);
    }
    return quoted.append('"').toString();
  }

  private Object value() {
    blanks();
    if (at >= text.length()) throw fault();
    switch (text.charAt(at)) {
      case '{': {
        Map<String, Object> object = new LinkedHashMap<>();
        at++;
        if (!skip('}')) {
          do {
            blanks();
            String name = string();
            expect(':');
            object.put(name, value());
          } while (skip(','));
          expect('}');
        }
        return object;
      }
      case '[': {
        List<Object> array = new ArrayList<>();
        at++;
        if (!skip(']')) {
          do array.add(value());
          while (skip(','));
          expect(']');
        }
        return array;
      }
      case '"':
        return string();
      default:
        int from = at;
        while (at < text.length() && isOfWord(text.charAt(at))) at++;
        String word = text.substring(from, at);
        return switch (word) {
          case "true" -> Boolean.TRUE;
          case "false" -> Boolean.FALSE;
          case "null" -> null;
          default -> Double.valueOf(word);
        };
    }
  }

  private String string() {
    if (at >= text.length() || text.charAt(at) != '"') throw fault();
    StringBuilder value = new StringBuilder();
    for (at++; at < text.length() && text.charAt(at) != '"'; at++) {
      char one = text.charAt(at);
      if (one != '\\') {
        value.append(one);
        continue;
      }
      one = text.charAt(++at);
      if (one == 'u') {
        value.append((char) Integer.parseInt(text.substring(at + 1, at + 5), 16));
        at += 4;
      } else {
        int known = "nrtbf".indexOf(one);
        value.append(known < 0 ? one : "\n\r\t\b\f".charAt(known));
      }
    }
    expect('"');
    return value.toString();
  }

  private static boolean isOfWord(char one) {
    return "+-.".indexOf(one) >= 0 || Character.isLetterOrDigit(one);
  }

  private boolean skip(char wanted) {
    blanks();
    if (at >= text.length() || text.charAt(at) != wanted) return false;
    at++;
    return true;
  }

  private void expect(char wanted) {
    if (!skip(wanted)) throw fault();
  }

  private void blanks() {
    while (at < text.length() && Character.isWhitespace(text.charAt(at))) at++;
  }

  private IllegalArgumentException fault() {
    return new IllegalArgumentException("This is no JSON at character " + at + ": " + text);
  }
}
