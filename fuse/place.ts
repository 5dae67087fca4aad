export interface Place {
  readonly parent: number;
  readonly name: string;
}

export function placeKey({ parent, name }: Place): string {
  return `${parent}/${name}`;
}
