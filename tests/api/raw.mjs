// HTTP by hand: bytes that no client library would send.
import net from "node:net";

export function connect(port) {
  return new Promise((resolve, reject) => {
    const socket = net.connect({ port, host: "127.0.0.1", allowHalfOpen: true });
    socket.once("connect", () => resolve(socket));
    socket.once("error", reject);
  });
}

// Everything that comes until the server closes, or `seconds` are over. Errors of the connection end it like a close.
export function received(socket, seconds = 20) {
  return new Promise((resolve) => {
    const parts = [];
    const done = () => {
      clearTimeout(timer);
      socket.destroy();
      resolve(Buffer.concat(parts).toString("latin1"));
    };
    const timer = setTimeout(done, seconds * 1000);
    socket.on("data", (part) => parts.push(part));
    socket.on("end", done);
    socket.on("close", done);
    socket.on("error", () => {});
  });
}

// The answer to `bytes`, head and body.
export async function exchange(port, bytes, seconds = 20) {
  const socket = await connect(port);
  const answer = received(socket, seconds);
  socket.write(bytes);
  return answer;
}

export const statusOf = (answer) => Number(/^HTTP\/1\.1 (\d{3}) /.exec(answer)?.[1] ?? 0);
export const headOf = (answer) => answer.slice(0, answer.indexOf("\r\n\r\n") + 2).toLowerCase();
export const bodyOf = (answer) => answer.slice(answer.indexOf("\r\n\r\n") + 4);

// A request as text; headers as lines, since some stand twice.
export function request(method, path, headers, body = "") {
  const length = body === "" ? [] : [`Content-Length: ${Buffer.byteLength(body)}`];
  return [`${method} ${path} HTTP/1.1`, ...headers, ...length, "Connection: close", "", body].join("\r\n");
}
