import type { Passing } from '../simulated-http.ts';

const ROWS_MAX = 12;

interface Row {
  count: number;
  readonly firstMs: number;
  lastMs: number;
}

/** Requests during some time by route: sender, receiver, number, and times. */
export class RequestTable {
  readonly #rows = new Map<string, Row>();
  readonly #beganMs: number;

  constructor(beganMs: number) {
    this.#beganMs = beganMs;
  }

  get count(): number {
    return [...this.#rows.values()].reduce((sum, { count }) => sum + count, 0);
  }

  /** @param to the server that receives the request */
  add(request: Passing, to: string, nowMs: number): void {
    const atMs = nowMs - this.#beganMs;
    const route = `${request.from} to ${to} ${routeOf(request)}`;
    const row = this.#rows.get(route) ?? { count: 0, firstMs: atMs, lastMs: atMs };
    row.count++;
    row.lastMs = atMs;
    this.#rows.set(route, row);
  }

  /** The routes with the most requests, one a line. */
  get text(): string {
    const rows = [...this.#rows].sort(([, a], [, b]) => b.count - a.count);
    const lines = rows.slice(0, ROWS_MAX).map(([route, { count, firstMs, lastMs }]) => {
      return `  ${count} ${route}, from ${seconds(firstMs)} to ${seconds(lastMs)} s`;
    });
    const more = rows.length - lines.length;
    return [...lines, ...(more > 0 ? [`  and ${more} other routes`] : [])].join('\n');
  }
}

/** @returns method and path without numbers, and the kind of a catalog query */
function routeOf({ method, path, body }: Passing): string {
  const route = `${method} ${(path.split('?')[0] as string).replaceAll(/\/\d+/g, '/:file')}`;
  const kind = path.startsWith('/v1/catalog/') ? /"kind":"([a-z-]+)"/.exec(body)?.[1] : undefined;
  return kind === undefined ? route : `${route} ${kind}`;
}

function seconds(ms: number): string {
  return (ms / 1_000).toFixed(1);
}
