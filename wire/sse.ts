import { MalformedError } from './bytes.ts';

/** Longer events come from another program. */
const EVENT_LENGTH_MAX = 256 * 1024;

export interface StreamEvent {
  readonly event: string;
  readonly data: string;
}

/** Formats a server-sent event; `data` is one line. */
export function streamEventText(event: string, data: string): string {
  return `event: ${event}\ndata: ${data}\n\n`;
}

/** Keeps a stream alive. */
export const STREAM_COMMENT = ':\n\n';

/** Parses server-sent events from pieces of text, also in other forms of the standard. */
export class StreamEventReader {
  #rest = '';
  #event = '';
  #data: string[] = [];

  /** @param text the next piece, cut anywhere. @returns completed events. @throws MalformedError if one never ends */
  push(text: string): StreamEvent[] {
    const lines = (this.#rest + text).split(/\r?\n/);
    this.#rest = lines.pop() ?? '';
    const events: StreamEvent[] = [];
    for (const line of lines) {
      if (line === '') {
        if (this.#data.length > 0) events.push({ event: this.#event, data: this.#data.join('\n') });
        this.#event = '';
        this.#data = [];
        continue;
      }
      const [, field = '', value = ''] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
      if (field === 'event') this.#event = value;
      else if (field === 'data') this.#data.push(value);
    }
    const length = this.#data.reduce((sum, line) => sum + line.length, this.#rest.length);
    if (length > EVENT_LENGTH_MAX) throw new MalformedError('An event of a stream does not end');
    return events;
  }
}
