import type { Network } from '../network.ts';
import type { HttpGate, Passing } from '../simulated-http.ts';

export type Verdict = 'hold' | 'lose';

/** Selects requests, or answers. */
export interface TrafficRule {
  readonly name: string;
  readonly verdict: Verdict;
  readonly what: 'request' | 'answer';
  /** The machine that sends the request. */
  readonly from: string;
  /** The server that receives it; null for any. */
  readonly origin: string | null;
  /** All of these are in the method, path or body of the request; one that begins with `=` is the path. */
  readonly texts: readonly string[];
  /** Whether it applies to all matching requests, and not only to the first. */
  readonly all: boolean;
}

interface Held {
  readonly go: () => void;
  readonly lose: () => void;
}

/**
 * Selects messages between servers: holds the first that matches, and all later messages of its server to these
 * others.
 */
export interface MessageRule {
  readonly name: string;
  readonly from: string;
  readonly to: readonly string[];
  readonly file: number;
  readonly kind: string;
}

interface NamedMessage {
  readonly file: number;
  readonly message: { readonly kind: string };
}

/** Requests and answers that wait until the schedule releases them, or that are lost. */
export class HeldTraffic {
  readonly #network: Network;
  #rules: TrafficRule[] = [];
  #messageRules: MessageRule[] = [];
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

  /** Called for each message between servers, and each call of a state transfer, before it is sent. */
  readonly message = (from: string, to: string, { file, message }: NamedMessage): void => {
    const rule = this.#messageRules.find(
      (one) => one.from === from && one.to.includes(to) && one.file === file && one.kind === message.kind,
    );
    if (rule === undefined) return;
    this.#messageRules = this.#messageRules.filter((one) => one !== rule);
    this.#met.set(rule.name, this.met(rule.name) + 1);
    for (const receiver of rule.to) this.#network.stall(from, receiver);
    const end = (): void => {
      for (const receiver of rule.to) this.#network.release(from, receiver);
    };
    this.#held.set(rule.name, [...(this.#held.get(rule.name) ?? []), { go: end, lose: end }]);
  };

  constructor(network: Network) {
    this.#network = network;
  }

  addMessage(rule: MessageRule): void {
    this.#messageRules.push(rule);
  }

  add(rule: TrafficRule): void {
    this.#rules.push(rule);
  }

  /** @returns the number of requests or answers that a rule has met */
  met(name: string): number {
    return this.#met.get(name) ?? 0;
  }

  /** Ends the rule, and releases or loses what it holds. @returns the number of those */
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
