import type { HttpGate, Passing } from '../simulated-http.ts';

export type Verdict = 'hold' | 'lose';

/** Which requests, or answers, a rule is about. */
export interface TrafficRule {
  readonly name: string;
  readonly verdict: Verdict;
  readonly what: 'request' | 'answer';
  /** The machine that sends the request. */
  readonly from: string;
  /** The server that it goes to; null for any. */
  readonly origin: string | null;
  /** All of these are in the method, path or body of the request; one that begins with `=` is the path. */
  readonly texts: readonly string[];
  /** Also those after the first. */
  readonly all: boolean;
}

interface Held {
  readonly go: () => void;
  readonly lose: () => void;
}

/** Requests and answers that wait until the schedule lets them pass, or are lost. */
export class HeldTraffic {
  #rules: TrafficRule[] = [];
  readonly #held = new Map<string, Held[]>();
  readonly #met = new Map<string, number>();

  readonly gate: HttpGate = (what, passing, go, lose) => {
    const rule = this.#rules.find((one) => one.what === what && isOf(one, passing));
    if (rule === undefined) return go();
    this.#met.set(rule.name, this.met(rule.name) + 1);
    if (!rule.all) this.#rules = this.#rules.filter((one) => one !== rule);
    if (rule.verdict === 'lose') return lose();
    this.#held.set(rule.name, [...(this.#held.get(rule.name) ?? []), { go, lose }]);
  };

  add(rule: TrafficRule): void {
    this.#rules.push(rule);
  }

  /** @returns how many requests or answers a rule has met */
  met(name: string): number {
    return this.#met.get(name) ?? 0;
  }

  /** Ends the rule, and has what it holds pass, or be lost. @returns how many those were */
  end(name: string, how: 'go' | 'lose'): number {
    this.#rules = this.#rules.filter((rule) => rule.name !== name);
    const held = this.#held.get(name) ?? [];
    this.#held.delete(name);
    for (const one of held) one[how]();
    return held.length;
  }
}

function isOf({ from, origin, texts }: TrafficRule, passing: Passing): boolean {
  if (passing.from !== from || (origin !== null && origin !== passing.origin)) return false;
  const { method, path, body } = passing;
  return texts.every(
    (text) =>
      text === `=${path.split('?', 1)[0]}` || [method, path, body].some((part) => part.includes(text)),
  );
}
