// The packages ask for Node.js 22; this is what they lack on 20.
if (!Promise.withResolvers) {
  Promise.withResolvers = function () {
    let resolve, reject;
    const promise = new this((a, b) => ([resolve, reject] = [a, b]));
    return { promise, resolve, reject };
  };
}
