export interface Finding {
  readonly name: string;
  readonly state: 'ok' | 'warning' | 'failed';
  /** What was found, in a sentence without a period. */
  readonly found: string;
  readonly fix: string;
}

export function ok(name: string, found: string): Finding {
  return { name, state: 'ok', found, fix: '' };
}

export function warning(name: string, found: string, fix: string): Finding {
  return { name, state: 'warning', found, fix };
}

export function failed(name: string, found: string, fix: string): Finding {
  return { name, state: 'failed', found, fix };
}
