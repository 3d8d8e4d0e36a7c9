"""Elementary functions as source text, for shading languages that lack them or promise too little of them."""
