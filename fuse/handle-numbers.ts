/** Numbers of open files and directories, never used again: the kernel may call by handle alone. */
export class HandleNumbers {
  #last = 0;

  next(): number {
    return ++this.#last;
  }
}
