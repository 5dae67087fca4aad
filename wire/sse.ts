import { MalformedError } from './bytes.ts';

/** Longer events are nobody's of ours. */
const EVENT_LENGTH_MAX = 256 * 1024;

export interface StreamEvent {
  readonly event: string;
  readonly data: string;
}

/** @returns one server-sent event as it is written; `data` is one line */
export function streamEventText(event: string, data: string): string {
  return `event: ${event}\ndata: ${data}\n\n`;
}

/** Keeps a stream alive and says nothing. */
export const STREAM_COMMENT = ':\n\n';

/** Reads server-sent events out of pieces of text, in the form that `streamEventText` writes, and others of the standard. */
export class StreamEventReader {
  #rest = '';
  #event = '';
  #data: string[] = [];

  /**
   * @param text the next piece, cut wherever the network liked
   * @returns the events that are complete with it
   * @throws MalformedError where an event does not end
   */
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
