export class Recorder { begin(){} take(){} }
