// Runs before the first paint (the one script that blocks it), so that a chosen theme never flashes the other.
try {
  const theme = localStorage.getItem("wader.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage is off: the system's theme it is.
}
