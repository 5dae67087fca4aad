export interface Address {
  readonly host: string;
  readonly port: number;
}

export function addressFormat({ host, port }: Address): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`;
}
