filters.addEventListener("input", () => drawLadder());
filters.addEventListener("submit", (event) => event.preventDefault());
filters.addEventListener("reset", () => setTimeout(drawLadder));
mapForm.addEventListener("input", () => drawHeat());
mapForm.addEventListener("submit", (event) => event.preventDefault());
byId("all").addEventListener("click", () => {
  const operators = groups(chosen()).map(([operator]) => operator);
  const open = operators.every((operator) => unfolded.has(operator));
  for (const operator of operators) if (open) unfolded.delete(operator); else unfolded.add(operator);
  drawLadder();
});
const followHash = () => { if (location.hash.startsWith("#s-")) openSignature(location.hash.slice(3)); };
addEventListener("hashchange", followHash);
drawLadder();
followHash();
