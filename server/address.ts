/** Where a server listens, or is found. */
export interface Address {
  readonly host: string;
  readonly port: number;
}

/** @returns `host:port`, with brackets around an IPv6 address */
export function addressFormat({ host, port }: Address): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`;
}
