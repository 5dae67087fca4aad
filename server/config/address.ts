export interface Address {
  readonly host: string;
  readonly port: number;
}

export function addressFormat({ host, port }: Address): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`;
}

export function addressParse(text: string): Address | null {
  const match = /^(?:\[([0-9A-Fa-f:.%a-z]+)\]|([A-Za-z0-9._-]+)):(\d{1,5})$/.exec(text);
  if (match === null) return null;
  const [, six, name, digits] = match;
  const port = Number(digits);
  if (port < 1 || port > 65_535) return null;
  return { host: six ?? name ?? '', port };
}
