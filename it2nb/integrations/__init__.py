"""At home in the trainers that people use. Each file imports its library when it is used."""
